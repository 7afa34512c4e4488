package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/jackc/pgx/v5/pgconn"
)

// The codes of PostgreSQL that say more than their class.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	codeReadOnly       = "25006"
	codeSerialization  = "40001"
	codeDeadlock       = "40P01"
	codeLockNotThere   = "55P03"
	codeUnique         = "23505"
	codeDiskFull       = "53100"
	codeQueryCancelled = "57014"
)

// failed turns an error of the database into one with a code. What comes from
// the caller's ctx stays as it is.
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
	case !answered && lost(err):
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the database is away: %w", doing, err)
	case !answered:
		return agl.Errorf(agl.CodeInternal, "postgres: %s: %w", doing, err)
	case pg.Code == codeReadOnly:
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: the database is a standby or read-only: %w", doing, err)
	case pg.Code == codeDiskFull:
		return agl.Errorf(agl.CodeExhausted, "postgres: %s: the database's disk is full: %w", doing, err)
	case pg.Code == codeQueryCancelled:
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: it took longer than the statement timeout: %w", doing, err)
	}
	switch pg.Code[:2] {
	case "08", "28", "3D", "40", "53", "55", "57", "58":
		// The connection, the login, the database's name, another transaction, the
		// server's resources, its objects' state, an operator, its machine.
		return agl.Errorf(agl.CodeUnavailable, "postgres: %s: %w", doing, err)
	}
	return agl.Errorf(agl.CodeInternal, "postgres: %s: %w", doing, err)
}

// batchFailed is failed for a batch, which has changed nothing when it can be
// run again.
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

// retry is the error of a batch that another process was in the way of.
func retry(doing string, cause error) error {
	return &agl.Error{
		Code:    agl.CodeUnavailable,
		Message: fmt.Sprintf("postgres: %s: %v: %v", doing, store.ErrRetry, cause),
		Err:     errors.Join(store.ErrRetry, cause),
	}
}

// lost reports whether an error says that there is no connection (any more), or
// that nothing came over it in time.
func lost(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, errConnectionLost) || agl.IsContextError(err) || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}

// errConnectionLost is the error of a connection that has broken in a way that
// its own error does not tell.
var errConnectionLost = errors.New("the connection is lost")
