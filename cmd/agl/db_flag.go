package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
)

// databaseFlag names the database of a command.
type databaseFlag struct {
	DB flags.Database `name:"db" default:"${database}" env:"AGL_DB" placeholder:"DATABASE" help:"The database: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE. Default: ${default}."`
}

func (f databaseFlag) Validate() error {
	if f.DB.Kind == store.Memory {
		return fmt.Errorf("--db: got %s, which is kept nowhere; must be sqlite:PATH or postgres://…", f.DB)
	}
	return nil
}

// with calls do with the open database.
func (f databaseFlag) with(ctx context.Context, do func(db driver.Database) error) (err error) {
	db, err := store.OpenDatabase(ctx, f.DB.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}
