package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// call is a statement with its arguments, and what reads its result.
type call struct {
	sql  string
	args []any
	each func(*row) error // nil ignores the rows
}

// session is the connection of the batches.
type session struct{ conn *pgx.Conn }

func (s *session) open() bool { return s.conn != nil && !s.conn.IsClosed() }

func (s *session) connect(ctx context.Context, config *pgx.ConnConfig) (err error) {
	s.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}

func (s *session) close(ctx context.Context) error {
	if !s.open() {
		return nil
	}
	return s.conn.Close(ctx)
}

// run sends the calls in one round trip and reads their results. It returns the error
// of the first call that failed; the server did not execute those after it.
func (s *session) run(ctx context.Context, calls []call) error {
	var batch pgx.Batch
	for _, c := range calls {
		queued := batch.Queue(c.sql, c.args...)
		if c.each != nil {
			queued.Query(func(rows pgx.Rows) error { return collect(rows, nil, c.each) })
		}
	}
	err := s.conn.SendBatch(ctx, &batch).Close()
	if _, answered := errors.AsType[*pgconn.PgError](err); err != nil && !answered {
		// It is unknown which calls the server has executed.
		return errors.Join(err, s.conn.Close(ctx))
	}
	return err
}
