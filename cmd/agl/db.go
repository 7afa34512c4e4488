package main

// databaseFlags say which database a command works on.
type databaseFlags struct {
	DB databaseName `name:"db" default:"${database}" env:"AGL_DB" help:"Where the data is kept: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or memory:, which loses it with the process (${default})."`
}
