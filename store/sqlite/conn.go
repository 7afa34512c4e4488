package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	driverimpl "modernc.org/sqlite"

	"github.com/agl-go/agl"
)

// conn is a connection with its prepared statements. One goroutine uses it at a time.
// It calls the SQL driver directly: database/sql would add a pool, locks and
// conversions by reflection to every statement.
type conn struct {
	raw   driver.Conn
	stmts map[string]*stmt
	// stops makes a statement that is running end with its ctx. The driver starts a goroutine per statement for that, so it
	// is for those that may take minutes. A ctx that ends between the driver's look at it and SQLite's first step is missed.
	stops bool
}

type stmt struct {
	raw  driver.Stmt
	args []driver.NamedValue
	row  []driver.Value
	busy bool // a query is running
}

// maxStatements bounds the prepared statements of a connection: queries have many
// forms.
const maxStatements = 128

// The modes of a connection, as in SQLite's URIs.
const (
	modeCreate   = "rwc"
	modeWrite    = "rw"
	modeReadOnly = "ro"
	modeMemory   = "memory" // the path is only a name
	// modeWithoutLog reads what the file holds without its write-ahead log, which it leaves alone.
	modeWithoutLog = "ro&immutable=1"
)

// connect opens a connection to the file at an absolute path.
func connect(path, mode string) (*conn, error) {
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "mode=" + mode + "&_error_rc=1"}
	connector, err := driverimpl.NewConnector(dsn.String())
	if err != nil {
		return nil, err
	}
	raw, err := connector.Driver().Open(dsn.String())
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, stmts: map[string]*stmt{}}, nil
}

func (c *conn) close() error {
	c.closeStatements()
	return c.raw.Close()
}

func (c *conn) closeStatements() {
	for sql, s := range c.stmts {
		if !s.busy {
			_ = s.raw.Close() // it repeats the error of its last step
			delete(c.stmts, sql)
		}
	}
}

func (c *conn) prepare(sql string) (*stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	if len(c.stmts) >= maxStatements {
		c.closeStatements()
	}
	raw, err := c.raw.Prepare(sql)
	if err != nil {
		return nil, err
	}
	s := &stmt{raw: raw}
	c.stmts[sql] = s
	return s, nil
}

// bind converts the arguments.
func (s *stmt) bind(args []any) error {
	if s.args == nil {
		s.args = make([]driver.NamedValue, len(args))
	}
	s.args = s.args[:0]
	for i, arg := range args {
		var v driver.Value
		switch x := arg.(type) {
		case nil, int64, float64, string, []byte:
			v = x
		case int:
			v = int64(x)
		case bool:
			v = int64(0)
			if x {
				v = int64(1)
			}
		default:
			return fmt.Errorf("sqlite: argument %d is a %T", i, arg)
		}
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return nil
}

// exec executes one statement.
func (c *conn) exec(ctx context.Context, sql string, args ...any) error {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	if err := s.bind(args); err != nil {
		return err
	}
	_, err = s.raw.(driver.StmtExecContext).ExecContext(c.during(ctx), s.args) //nolint:forcetypeassert // it is one
	clear(s.args)
	return c.stopped(ctx, err)
}

// during is the context of a running statement.
func (c *conn) during(ctx context.Context) context.Context {
	if c.stops {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// stopped is the error of a statement: that of ctx if it has ended the statement.
func (c *conn) stopped(ctx context.Context, err error) error {
	if err != nil && c.stops && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// script executes statements without preparing them.
func (c *conn) script(ctx context.Context, sql string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(c.during(ctx), sql, nil) //nolint:forcetypeassert // it is one
	return c.stopped(ctx, err)
}

// errStop ends a query without an error.
var errStop = errors.New("enough rows")

// query calls each for every row. It stops at the first error or when ctx ends. each
// must not use the same statement.
func (c *conn) query(ctx context.Context, sql string, args []any, each func(r row) error) (err error) {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	if err := s.bind(args); err != nil {
		return err
	}
	rows, err := s.raw.(driver.StmtQueryContext).QueryContext(c.during(ctx), s.args) //nolint:forcetypeassert // it is one
	clear(s.args)
	if err != nil {
		return c.stopped(ctx, err)
	}
	s.busy = true
	defer func() {
		s.busy = false
		clear(s.row)
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	if s.row == nil {
		s.row = make([]driver.Value, len(rows.Columns()))
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := rows.Next(s.row); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := each(s.row); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
}

// number returns the only value of a query, 0 if there is no row or the value is null.
func (c *conn) number(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = c.query(ctx, sql, args, func(r row) error {
		n = r.int(0)
		return errStop
	})
	return n, err
}

// text returns the only value of a query, "" if there is no row.
func (c *conn) text(ctx context.Context, sql string) (string, error) {
	return one(ctx, c, sql, nil, func(r row) (string, error) { return r.text(0), nil })
}

// one returns what scan makes of the only row of a query, the zero value if there is none.
func one[T any](ctx context.Context, c *conn, sql string, args []any, scan func(r row) (T, error)) (out T, err error) {
	err = c.query(ctx, sql, args, func(r row) error {
		out, err = scan(r)
		return err
	})
	return out, err
}

// snapshot calls read in one transaction: it sees one moment.
func (c *conn) snapshot(ctx context.Context, read func() error) (err error) {
	if err := c.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	defer func() {
		if end := c.exec(ctx, "ROLLBACK"); err == nil {
			err = end
		}
	}()
	return read()
}

// row is a row of a result. Its methods return values that the caller owns.
type row []driver.Value

func (r row) null(i int) bool { return r[i] == nil }

func (r row) int(i int) int64 {
	v, _ := r[i].(int64)
	return v
}

func (r row) nullInt(i int) agl.Null[int64] {
	return agl.Null[int64]{V: r.int(i), Valid: !r.null(i)}
}

func (r row) bool(i int) bool { return r.int(i) != 0 }

func (r row) float(i int) float64 {
	switch v := r[i].(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	}
	return 0
}

func (r row) text(i int) string {
	switch v := r[i].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func (r row) bytes(i int) []byte {
	switch v := r[i].(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

func (r row) time(i int) agl.Timestamp { return agl.Timestamp(r.float(i)) }

func (r row) nullTime(i int) agl.Null[agl.Timestamp] {
	return agl.Null[agl.Timestamp]{V: r.time(i), Valid: !r.null(i)}
}

func (r row) nullText(i int) agl.Null[string] {
	return agl.Null[string]{V: r.text(i), Valid: !r.null(i)}
}

// nullTime and the like turn values into arguments.
func nullTime(t agl.Null[agl.Timestamp]) any {
	return orNull(float64(t.V), t.Valid)
}

func nullInt(n agl.Null[int64]) any { return orNull(n.V, n.Valid) }

func nullText(s agl.Null[string]) any { return orNull(s.V, s.Valid) }

// orNull returns a value as an argument, null if it is not given.
func orNull[T any](v T, given bool) any {
	if !given {
		return nil
	}
	return v
}

// nullBytes converts an empty document to null.
func nullBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

func itoa[I ~int | ~int64](n I) string { return strconv.FormatInt(int64(n), 10) }
