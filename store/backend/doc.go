// Package backend opens the database that a name such as "sqlite:agl.db"
// stands for. It is the one place that knows every driver; it must not know
// what is done with them.
package backend
