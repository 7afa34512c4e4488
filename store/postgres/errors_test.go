package postgres

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agl-go/agl"
)

// An error that callers get says what is wrong with the connection, and not where the database is.
func TestNoAddressInErrors(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, refused := pgconn.Connect(t.Context(), "postgres://bob:pw@"+address+"/inner?sslmode=disable")
	broken := &net.OpError{Op: "read", Net: "tcp", Addr: listener.Addr(), Err: errors.New("connection reset by peer")}
	for want, err := range map[string]error{
		"connect: connection refused": refused,
		"connection reset by peer":    broken,
		"no such host":                &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "db.internal"}},
		"unexpected EOF":              io.ErrUnexpectedEOF,
	} {
		got := failed(t.Context(), "read", err)
		if agl.ErrorCode(got) != agl.CodeUnavailable || got.Error() != "postgres: read: the database is away: "+want {
			t.Errorf("%v:\n got %v\nwant %s", err, got, want)
		}
	}
}
