package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// statement is one that batches send again and again. It is prepared on a
// connection when it is first used there.
type statement struct {
	name, sql string
}

// call is a statement with its parameters, in binary, and what reads its result.
type call struct {
	statement *statement
	params    [][]byte
	each      func(*row) error // nil ignores the rows
}

// session is the connection that batches use, one at a time.
type session struct {
	conn     *pgconn.PgConn
	prepared map[*statement]*pgconn.StatementDescription
}

func (s *session) open() bool { return s.conn != nil && !s.conn.IsClosed() }

// connect makes a new connection.
func (s *session) connect(ctx context.Context, config *pgconn.Config) (err error) {
	s.prepared = map[*statement]*pgconn.StatementDescription{}
	s.conn, err = pgconn.ConnectConfig(ctx, config)
	return err
}

func (s *session) close(ctx context.Context) error {
	if !s.open() {
		return nil
	}
	return s.conn.Close(ctx)
}

// run sends the calls in one round trip and reads their results. Its error is
// that of the first that failed; those behind it were not executed.
func (s *session) run(ctx context.Context, calls []call) error {
	p := s.conn.StartPipeline(ctx)
	binary := []int16{1}
	preparing := make([]bool, len(calls))
	for i := range calls {
		c := &calls[i]
		if described := s.prepared[c.statement]; described != nil {
			p.SendQueryStatement(described, c.params, binary, binary)
			continue
		}
		before := slices.ContainsFunc(calls[:i], func(b call) bool { return b.statement == c.statement })
		if preparing[i] = !before; !before {
			p.SendPrepare(c.statement.name, c.statement.sql, nil)
		}
		p.SendQueryPrepared(c.statement.name, c.params, binary, binary)
	}
	err := p.Sync()
	if err == nil {
		err = s.read(p, calls, preparing)
	}
	// Close reads the rest of the results, so that the connection is ready for the
	// next calls.
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if _, answered := errors.AsType[*pgconn.PgError](err); err != nil && !answered {
		// What the server has done is not known, nor what it has prepared.
		return errors.Join(err, s.conn.Close(ctx))
	}
	return err
}

func (s *session) read(p *pgconn.Pipeline, calls []call, preparing []bool) error {
	for i := range calls {
		if preparing[i] {
			result, err := p.GetResults()
			if err != nil {
				return err
			}
			described, ok := result.(*pgconn.StatementDescription)
			if !ok {
				return fmt.Errorf("%w: %T instead of a prepared statement", errConnectionLost, result)
			}
			described.Name, described.SQL = calls[i].statement.name, calls[i].statement.sql
			s.prepared[calls[i].statement] = described
		}
		result, err := p.GetResults()
		if err != nil {
			return err
		}
		reader, ok := result.(*pgconn.ResultReader)
		if !ok {
			return fmt.Errorf("%w: %T instead of a result", errConnectionLost, result)
		}
		if err := readRows(reader, calls[i].each); err != nil {
			return err
		}
	}
	return nil
}

func readRows(reader *pgconn.ResultReader, each func(*row) error) error {
	var bad error
	for reader.NextRow() {
		if each != nil && bad == nil {
			bad = each(&row{values: reader.Values()})
		}
	}
	_, err := reader.Close()
	return errors.Join(err, bad)
}
