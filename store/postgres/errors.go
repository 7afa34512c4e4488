package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// The error codes of PostgreSQL that need more than their class.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	codeReadOnly       = "25006"
	codeIdle           = "25P03" // the connection is ended
	codeLong           = "25P04" // the same, for a transaction
	codeSerialization  = "40001"
	codeDeadlock       = "40P01"
	codeLockNotThere   = "55P03"
	codeUnique         = "23505"
	codeNoRight        = "42501"
	codeDiskFull       = "53100"
	codeQueryCancelled = "57014"
)

// failed turns a database error into one with a code. Errors of the caller's ctx stay
// as they are.
func failed(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*agl.Error](err); ours {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // the only row of store, or of event_counter
		return errIncomplete
	case !answered && lost(err):
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the database is away: %w", doing, cause(err))
	case !answered:
		return agl.Errorf(agl.CodeInternal, "postgres: %s: %w", doing, err)
	case pg.Code == codeReadOnly: // such as after a failover that has made it a standby
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the database is a standby or read-only: %w", doing, err)
	case pg.Code == codeUndefinedTable, pg.Code == codeNoSchema:
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the database does not have the tables of agl: it is another one, or a backup is being restored: %w", doing, err)
	case pg.Code == codeNoRight: // such as while a backup is restored, which grants the rights at the end
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the role lacks a right: %w", doing, err)
	case pg.Code == codeDiskFull:
		return agl.Errorf(agl.CodeExhausted, "postgres: %s: the database's disk is full: %w", doing, err)
	case pg.Code == codeIdle, pg.Code == codeLong:
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: this process was suspended, or the database's limit for transactions is too short: %w", doing, err)
	case pg.Code == codeQueryCancelled:
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: it took longer than the statement timeout: %w", doing, err)
	}
	switch pg.Code[:2] {
	case "28", "3D": // PostgreSQL's text names the user and the database
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the database refuses the login of this server: %s (SQLSTATE %s)", doing, refusal(pg.Code), pg.Code)
	case "08", "40", "53", "55", "57", "58":
		// Connection, conflicting transaction, resources, object state, operator intervention,
		// system error.
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: %w", doing, pg)
	}
	return agl.Errorf(agl.CodeInternal, "postgres: %s: %w", doing, err)
}

// refusal says why a login was refused.
func refusal(code string) string {
	switch code {
	case "28P01":
		return "the password of its role is wrong, or there is no such role"
	case "3D000":
		return "there is no such database"
	}
	return "pg_hba.conf does not admit its role, or the role does not exist or may not log in"
}

// cause returns what is wrong with a connection, without the user, the database and the addresses: callers who have not even
// shown a key get this error.
func cause(err error) error {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New(lookup.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("its certificate is not trusted")
	}
	if connecting, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return innermost(connecting)
	}
	return err
}

// innermost returns what an error, or the last of several, began with.
func innermost(err error) error {
	switch wrapping := err.(type) { //nolint:errorlint // it unwraps
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			return innermost(inner)
		}
	case interface{ Unwrap() []error }:
		if inner := wrapping.Unwrap(); len(inner) > 0 {
			return innermost(inner[len(inner)-1])
		}
	}
	return err
}

// batchFailed is failed for a batch. Errors after which the batch can run again wrap
// driver.ErrRetry.
func batchFailed(ctx context.Context, doing string, err error) error {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	if answered {
		switch pg.Code {
		case codeSerialization, codeDeadlock, codeLockNotThere, codeUnique:
			return retry(doing, err)
		}
	}
	return failed(ctx, doing, err)
}

// retry is the error of a batch that conflicted with another process.
func retry(doing string, cause error) error {
	return &agl.Error{
		Code:    agl.CodeUnavailable,
		Message: fmt.Sprintf("postgres: %s: %v: %v", doing, driver.ErrRetry, cause),
		Err:     errors.Join(driver.ErrRetry, cause),
	}
}

// lost reports whether an error means that the connection is gone, or did not answer
// in time.
func lost(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		agl.IsContextError(err) || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}
