package postgres

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/agl-go/agl"
)

// An error that callers get says what is wrong with the connection, and not where the database is.
func TestNoAddressInErrors(t *testing.T) {
	t.Parallel()
	_, refused := pgconn.Connect(t.Context(), "postgres://bob:pw@127.0.0.1:1/inner?sslmode=disable")
	broken := &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: errors.New("connection reset by peer")}
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

// A database that answers, and lets nobody in, is not named either.
func TestNoNamesInErrorsOfLogins(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil)
	t.Cleanup(web.Close)
	for name, c := range map[string]struct {
		answer  func(conn net.Conn)
		sslmode string
		want    string
	}{
		"a wrong password": {refuse("28P01", `password authentication failed for user "bob"`), "disable", "the database refuses the login of this server: the password of its role is wrong, or there is no such role (SQLSTATE 28P01)"},
		"no such database": {refuse("3D000", `database "inner" does not exist`), "disable", "the database refuses the login of this server: there is no such database (SQLSTATE 3D000)"},
		"not admitted": {refuse("28000", `no pg_hba.conf entry for host "10.0.0.1", user "bob", database "inner"`), "disable",
			"the database refuses the login of this server: pg_hba.conf does not admit its role, or the role does not exist or may not log in (SQLSTATE 28000)"},
		"too many":     {refuse("53300", "sorry, too many clients already"), "disable", "FATAL: sorry, too many clients already (SQLSTATE 53300)"},
		"no TLS":       {func(conn net.Conn) { _, _ = conn.Write([]byte("N")) }, "require", "the database is away: server refused TLS connection"},
		"a foreign CA": {func(conn net.Conn) { _, _ = conn.Write([]byte("S")); _ = tls.Server(conn, web.TLS).Handshake() }, "verify-full", "the database is away: its certificate is not trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1024)) // the request for TLS, or the login
				c.answer(conn)
			}()
			_, err = pgconn.Connect(t.Context(), "postgres://bob:pw@"+listener.Addr().String()+"/inner?sslmode="+c.sslmode)
			if got := failed(t.Context(), "read", err); agl.ErrorCode(got) != agl.CodeUnavailable || got.Error() != "postgres: read: "+c.want {
				t.Errorf("%v:\n got %v\nwant %s", err, got, c.want)
			}
		})
	}
}

// refuse answers a login with an error.
func refuse(code, message string) func(conn net.Conn) {
	return func(conn net.Conn) {
		answer, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message}).Encode(nil)
		_, _ = conn.Write(answer)
	}
}

// A pooler without a free session lets a client log in, and wait.
func TestNoSessionLeft(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for { // pgx comes again to cancel what it waited for
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1024)) // the login
				answer, _ := (&pgproto3.AuthenticationOk{}).Encode(nil)
				answer, _ = (&pgproto3.ReadyForQuery{TxStatus: 'I'}).Encode(answer)
				_, _ = conn.Write(answer)
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	config := Config{URL: "postgres://bob:pw@" + listener.Addr().String() + "/inner?sslmode=disable", ConnectTimeout: 500 * time.Millisecond}.withDefaults()
	if _, err := Open(t.Context(), config); agl.ErrorCode(err) != agl.CodeUnavailable || !strings.Contains(err.Error(), "default_pool_size") {
		t.Errorf("got %v, want the hint at the pooler", err)
	}
}
