package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agl-go/agl"
)

// SiblingURL returns the URL of another database on the same server, with the same
// parameters. Its name is that of the URL's database, an underscore and the suffix. The
// error is ErrInvalid if the URL names no database or the name is longer than 63 bytes.
func SiblingURL(raw, suffix string) (sibling, database string, err error) {
	u, err := url.Parse(raw)
	if err != nil { // err contains the secrets
		return "", "", agl.Errorf(agl.CodeInvalid, "got %s, which is not a URL", location(raw))
	}
	base := strings.TrimPrefix(u.Path, "/")
	if base == "" || strings.Contains(base, "/") {
		return "", "", agl.Errorf(agl.CodeInvalid, "got %s, the URL must name a database, after which those of projects are named", location(raw))
	}
	const maxName = 63 // bytes of an identifier
	database = base + "_" + suffix
	if len(database) > maxName {
		return "", "", agl.Errorf(agl.CodeInvalid, "the database %s would have a name of more than %d bytes", database, maxName)
	}
	u.Path, u.RawPath = "/"+database, ""
	return u.String(), database, nil
}

// CreateDatabase creates a database on the server of a URL, unless it exists. The URL's role
// needs the right CREATEDB; without it the error is ErrUnauthorized.
func CreateDatabase(ctx context.Context, raw, database string) error {
	config, err := parse(Config{URL: raw, ConnectTimeout: createTimeout, StatementTimeout: createTimeout, LockTimeout: createTimeout})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*createTimeout) //nolint:mnd // to connect and to create
	defer cancel()
	conn, err := connect(ctx, config.ConnConfig)
	if err != nil {
		return agl.Errorf(agl.CodeUnavailable, "create the database %s: %w", database, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{database}.Sanitize())
	failed, is := errors.AsType[*pgconn.PgError](err)
	const duplicate, duplicateKey, notAllowed = "42P04", "23505", "42501"
	switch {
	case err == nil, is && (failed.Code == duplicate || failed.Code == duplicateKey):
		return nil
	case is && failed.Code == notAllowed:
		return agl.Errorf(agl.CodeUnauthorized, "create the database %s: the role %s needs the right CREATEDB: %w", database, config.ConnConfig.User, err)
	}
	return agl.Errorf(agl.CodeUnavailable, "create the database %s: %w", database, err)
}

// createTimeout bounds each step of creating a database, which copies a template.
const createTimeout = 30 * time.Second
