package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// call is a statement, its arguments in binary form, and the function that reads its rows.
type call struct {
	sql    string
	params [][]byte
	each   func(*row) error // nil ignores the rows
}

// session is the connection of the batches. It prepares each statement when it first
// uses it.
type session struct {
	conn     *pgconn.PgConn
	prepared map[string]*pgconn.StatementDescription // by SQL
	answered int                                     // how many calls of the last run have succeeded
}

func (s *session) open() bool { return s.conn != nil && !s.conn.IsClosed() }

func (s *session) connect(ctx context.Context, config *pgconn.Config) (err error) {
	s.prepared = map[string]*pgconn.StatementDescription{}
	s.conn, err = pgconn.ConnectConfig(ctx, inSession(config))
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
	s.answered = 0
	unknown := s.unprepared(calls)
	p := s.conn.StartPipeline(ctx)
	for i, sql := range unknown {
		p.SendPrepare(s.name(i), sql, nil)
	}
	binary := []int16{1}
	for i := range calls {
		c := &calls[i]
		if described := s.prepared[c.sql]; described != nil {
			p.SendQueryStatement(described, c.params, binary, binary)
		} else {
			p.SendQueryPrepared(s.name(slices.Index(unknown, c.sql)), c.params, binary, binary)
		}
	}
	err := p.Sync()
	if err == nil {
		err = s.read(p, calls, unknown)
	}
	// Close reads the rest of the results, so that the connection is ready for the next
	// calls.
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if _, answered := errors.AsType[*pgconn.PgError](err); err != nil && !answered {
		// It is unknown which calls the server has executed, and what it has prepared.
		return errors.Join(err, s.conn.Close(ctx))
	}
	return err
}

// unprepared returns the statements of the calls that the server does not know.
func (s *session) unprepared(calls []call) []string {
	var out []string
	for i := range calls {
		if sql := calls[i].sql; s.prepared[sql] == nil && !slices.Contains(out, sql) {
			out = append(out, sql)
		}
	}
	return out
}

// name is the name of the statement that is prepared after i others.
func (s *session) name(i int) string { return "batch_" + strconv.Itoa(len(s.prepared)+i) }

func (s *session) read(p *pgconn.Pipeline, calls []call, unknown []string) error {
	for _, sql := range unknown {
		described, err := result[*pgconn.StatementDescription](p)
		if err != nil {
			return err
		}
		described.Name, described.SQL = s.name(0), sql
		s.prepared[sql] = described
	}
	for i := range calls {
		rows, err := result[*pgconn.ResultReader](p)
		if err != nil {
			return err
		}
		if err := calls[i].read(rows); err != nil {
			return err
		}
		s.answered++
	}
	return nil
}

// result returns the pipeline's next result.
func result[R any](p *pgconn.Pipeline) (out R, err error) {
	got, err := p.GetResults()
	if err != nil {
		return out, err
	}
	out, ok := got.(R)
	if !ok {
		return out, fmt.Errorf("the server sent a %T, want a %T", got, out)
	}
	return out, nil
}

func (c *call) read(rows *pgconn.ResultReader) error {
	var bad error
	r := row{}
	for rows.NextRow() {
		if c.each != nil && bad == nil {
			r = row{values: rows.Values()}
			bad = c.each(&r)
		}
	}
	_, err := rows.Close()
	return errors.Join(err, bad)
}
