package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// selfSigned makes a self-signed certificate of 127.0.0.1, which ends after a time.
func selfSigned(t *testing.T, valid time.Duration) (pair *tls.Certificate, trusted *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "store"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	trusted = x509.NewCertPool()
	trusted.AddCert(leaf)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, trusted
}

// secured is a store behind TLS whose certificate can be replaced.
type secured struct {
	*httptest.Server

	shown      atomic.Pointer[tls.Certificate]
	handshakes atomic.Int64
}

func newSecured(t *testing.T, first *tls.Certificate) *secured {
	t.Helper()
	s := &secured{Server: httptest.NewUnstartedServer(newServer(t, server.Config{Store: memorytest.Open(t)}))}
	s.shown.Store(first)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.handshakes.Add(1)
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*s.shown.Load()}}, nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// logged calls a function for each line of a log.
type logged func(line string)

func (f logged) Write(line []byte) (int, error) {
	f(string(line))
	return len(line), nil
}

func securedClient(t *testing.T, url string, trusted *x509.CertPool, log io.Writer) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		URL: url, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted}, MaxBackoff: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A server whose certificate is not accepted, or that does not encrypt, is a mistake at the start, and is not asked again.
func TestRefusedCertificateAtTheStart(t *testing.T) {
	t.Parallel()
	expired, trusted := selfSigned(t, -time.Hour)
	good, _ := selfSigned(t, time.Hour)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	s := newSecured(t, expired)
	for name, given := range map[string]struct {
		url   string
		shown *tls.Certificate
		want  string
	}{
		"expired":    {s.URL, expired, "certificate has expired"},
		"unknown CA": {s.URL, good, "unknown authority"},
		"no TLS":     {strings.Replace(plain.URL, "http:", "https:", 1), good, "server gave HTTP response to HTTPS client"},
	} {
		s.shown.Store(given.shown)
		before := s.handshakes.Load()
		var lines strings.Builder
		_, err := securedClient(t, given.url, trusted, &lines).Statistics(t.Context())
		if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), given.want) {
			t.Errorf("%s: %v, want CodeInvalid and %q", name, err, given.want)
		}
		if n := s.handshakes.Load() - before; n > 1 {
			t.Errorf("%s: asked %d times, log: %s", name, n, lines.String())
		}
	}
}

// A certificate that expires, or is replaced by one that is not trusted, while the client runs is an outage: the log
// names it, and the request goes on once it is repaired.
func TestRefusedCertificateLater(t *testing.T) {
	t.Parallel()
	good, trusted := selfSigned(t, time.Hour)
	expired, _ := selfSigned(t, -time.Hour)
	stranger, _ := selfSigned(t, time.Hour)
	trusted.AddCert(expired.Leaf)
	s := newSecured(t, good)
	for name, bad := range map[string]*tls.Certificate{"certificate has expired": expired, "unknown authority": stranger} {
		s.shown.Store(good)
		var lines strings.Builder
		c := securedClient(t, s.URL, trusted, logged(func(line string) {
			lines.WriteString(line)
			s.shown.Store(good) // somebody reads the log
		}))
		if _, err := c.Statistics(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.shown.Store(bad)
		s.CloseClientConnections()
		if _, err := c.Statistics(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(lines.String(), name) {
			t.Errorf("the log does not say %q: %s", name, lines.String())
		}
	}
}
