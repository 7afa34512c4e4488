package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store/driver"
)

// dbCommand lists what operators do with a database.
type dbCommand struct {
	Status  dbStatusCommand  `cmd:"" help:"Show what a database is and holds. Changes nothing."`
	Migrate dbMigrateCommand `cmd:"" help:"Create a database's schema, or bring it up to date. agl store does this when it starts."`
	Check   dbCheckCommand   `cmd:"" help:"Read everything, verify its checksums and report what is wrong."`
	Vacuum  dbVacuumCommand  `cmd:"" help:"Give free space back to the system."`
	Backup  dbBackupCommand  `cmd:"" help:"Copy a SQLite database to a new file, while servers use it."`
	Export  dbExportCommand  `cmd:"" help:"Write everything as JSON lines, while servers use it."`
	Import  dbImportCommand  `cmd:"" help:"Read an export into an empty database of any kind. Repeat an interrupted import to continue it."`
}

type dbStatusCommand struct {
	databaseFlag
	JSON bool `help:"Print the status as one JSON object."`
}

func (c *dbStatusCommand) run(ctx context.Context, out *console.Console) error {
	return c.with(ctx, func(db driver.Database) error {
		status, err := db.Status(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			err = printStatusJSON(out, &status)
		} else {
			err = printStatus(out, &status)
		}
		if err != nil {
			return err
		}
		if status.SchemaVersion > status.KnownVersion {
			return fmt.Errorf("%s: its schema %d is newer than this program, which knows up to %d", c.DB, status.SchemaVersion, status.KnownVersion)
		}
		return nil
	})
}

func printStatus(out *console.Console, s *driver.DatabaseStatus) error {
	inUse := "no"
	if s.InUse {
		inUse = "yes, by a server"
	}
	schema := fmt.Sprintf("%d, the newest", s.SchemaVersion)
	switch {
	case s.SchemaVersion == 0:
		schema = "none yet: agl store or agl db migrate makes it"
	case s.SchemaVersion < s.KnownVersion:
		schema = fmt.Sprintf("%d of %d: agl store or agl db migrate brings it up to date", s.SchemaVersion, s.KnownVersion)
	case s.SchemaVersion > s.KnownVersion:
		schema = fmt.Sprintf("%d, newer than this program, which knows up to %d", s.SchemaVersion, s.KnownVersion)
	}
	size := console.Bytes(s.Bytes)
	if s.FreeBytes > 0 {
		size += ", " + console.Bytes(s.FreeBytes) + " of it free"
	}
	text := fmt.Sprintf("database   %s\nengine     %s\nschema     %s\nsize       %s\nin use     %s\n", s.Location, s.Name, schema, size, inUse)
	if s.PartlyFilled {
		text += "import     interrupted: agl db import with the same export continues it\n"
	}
	if n := &s.Contents; s.SchemaVersion == s.KnownVersion { // another schema cannot be counted
		text += fmt.Sprintf("rollouts   %d\nattempts   %d\nspans      %d\nresources  %d\nworkers    %d\n",
			n.TotalRollouts, n.TotalAttempts, n.TotalSpans, n.TotalResources, n.TotalWorkers)
	}
	return out.Printf("%s", text)
}

// statusDocument is a status as JSON.
type statusDocument struct {
	Location      string          `json:"location"`
	Engine        string          `json:"engine"`
	SchemaVersion int             `json:"schema_version"`
	KnownVersion  int             `json:"known_version"`
	Bytes         int64           `json:"bytes"`
	FreeBytes     int64           `json:"free_bytes"`
	InUse         bool            `json:"in_use"`
	PartlyFilled  bool            `json:"partly_filled,omitzero"` // an import was interrupted
	Contents      *statusContents `json:"contents"`               // null if this program does not know the schema
}

type statusContents struct {
	Rollouts  int `json:"rollouts"`
	Attempts  int `json:"attempts"`
	Spans     int `json:"spans"`
	Resources int `json:"resources"`
	Workers   int `json:"workers"`
}

func printStatusJSON(out *console.Console, s *driver.DatabaseStatus) error {
	status := statusDocument{
		Location: s.Location, Engine: s.Name, SchemaVersion: s.SchemaVersion, KnownVersion: s.KnownVersion,
		Bytes: s.Bytes, FreeBytes: s.FreeBytes, InUse: s.InUse, PartlyFilled: s.PartlyFilled,
	}
	if s.SchemaVersion == s.KnownVersion {
		status.Contents = &statusContents{
			s.Contents.TotalRollouts, s.Contents.TotalAttempts, s.Contents.TotalSpans, s.Contents.TotalResources, s.Contents.TotalWorkers,
		}
	}
	return out.JSON(document{&status})
}

type dbMigrateCommand struct{ databaseFlag }

func (c *dbMigrateCommand) run(ctx context.Context, out *console.Console) error {
	return c.with(ctx, func(db driver.Database) error {
		from, to, err := db.Migrate(ctx)
		switch {
		case err != nil:
			return err
		case from == to:
			return out.Printf("%s: schema %d is up to date\n", c.DB, to)
		case from == 0:
			return out.Printf("%s: made, with schema %d\n", c.DB, to)
		}
		return out.Printf("%s: schema %d is now %d\n", c.DB, from, to)
	})
}

type dbCheckCommand struct{ databaseFlag }

func (c *dbCheckCommand) run(ctx context.Context, out *console.Console) error {
	return c.with(ctx, func(db driver.Database) error {
		var problems int
		var output error
		err := db.Check(ctx, func(p driver.Problem) {
			problems++
			output = errors.Join(output, out.Printf("%s: %s\n", p.Where, strings.ReplaceAll(p.What, "\n", " ")))
		})
		switch {
		case err != nil || output != nil:
			return errors.Join(err, output)
		case problems > 0:
			return fmt.Errorf("%s: problems found: %d", c.DB, problems)
		}
		return out.Printf("%s: no problem found\n", c.DB)
	})
}

type dbVacuumCommand struct{ databaseFlag }

func (c *dbVacuumCommand) run(ctx context.Context, out *console.Console) error {
	return c.with(ctx, func(db driver.Database) error {
		before, err := db.Status(ctx)
		if err != nil {
			return err
		}
		if err := db.Vacuum(ctx); err != nil {
			return err
		}
		after, err := db.Status(ctx)
		if err != nil {
			return err
		}
		return out.Printf("%s: %s, was %s\n", c.DB, console.Bytes(after.Bytes), console.Bytes(before.Bytes))
	})
}

type dbBackupCommand struct {
	databaseFlag
	File string `arg:"" help:"The new file."`
}

func (c *dbBackupCommand) Validate() error {
	if c.File == "-" {
		return errors.New("got - for <file>, must be a file: a backup is no stream; agl db export writes to standard output")
	}
	return c.databaseFlag.Validate()
}

func (c *dbBackupCommand) run(ctx context.Context, out *console.Console) error {
	return c.with(ctx, func(db driver.Database) error {
		if err := db.Backup(ctx, c.File); err != nil {
			return err
		}
		file, err := os.Stat(c.File)
		if err != nil {
			return err
		}
		return out.Printf("%s: %s written to %s\n", c.DB, console.Bytes(file.Size()), c.File)
	})
}
