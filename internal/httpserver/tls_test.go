package httpserver_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
)

// authority is a CA for tests.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.issue(t, "ca", template)
	return a
}

// issue writes a certificate and its key to NAME.pem and NAME.key.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	if template.SerialNumber == nil {
		template.SerialNumber = big.NewInt(1)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		a.key = key
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) server(t *testing.T, serial int64) {
	t.Helper()
	a.issue(t, "server", &x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// Connections are encrypted with the certificate that is in the files when they begin, and
// the names of verified clients are known.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.server(t, 100)
	spiffe, err := url.Parse("spiffe://example/runner")
	if err != nil {
		t.Fatal(err)
	}
	clientOnly := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	ca.issue(t, "named", &x509.Certificate{Subject: pkix.Name{CommonName: "ci"}, ExtKeyUsage: clientOnly})
	ca.issue(t, "spiffe", &x509.Certificate{Subject: pkix.Name{CommonName: "ci"}, URIs: []*url.URL{spiffe}, ExtKeyUsage: clientOnly})
	stranger := newAuthority(t)
	stranger.issue(t, "named", &x509.Certificate{Subject: pkix.Name{CommonName: "ci"}, ExtKeyUsage: clientOnly})

	files := httpserver.TLS{CertFile: ca.file("server.pem"), KeyFile: ca.file("server.key"), ClientCAFile: ca.file("ca.pem")}
	var config net.ListenConfig
	plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	listener, err := files.Listener(plain, log)
	if err != nil {
		t.Fatal(err)
	}
	running := httpserver.Start(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", httpserver.ClientName(r)) }), log)
	defer func() {
		if err := running.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	get := func(trust, certificate string) (body string, serial int64, err error) {
		settings, err := httpserver.Trust{CAFile: trust}.Config()
		if err != nil {
			t.Fatal(err)
		}
		if certificate != "" {
			pair, err := tls.LoadX509KeyPair(certificate+".pem", certificate+".key")
			if err != nil {
				t.Fatal(err)
			}
			// Sent even if the server does not ask for a certificate of this CA.
			settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		transport := &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+plain.Addr().String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return "", 0, err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return string(text), res.TLS.PeerCertificates[0].SerialNumber.Int64(), err
	}
	for certificate, want := range map[string]string{"": `""`, ca.file("named"): `"ci"`, ca.file("spiffe"): `"spiffe://example/runner"`} {
		if body, serial, err := get(ca.file("ca.pem"), certificate); err != nil || body != want || serial != 100 {
			t.Errorf("with %q: %s, serial %d, error %v, want %s", certificate, body, serial, err, want)
		}
	}
	if _, _, err := get(stranger.file("ca.pem"), ""); err == nil {
		t.Error("a client that trusts another CA was served")
	}
	if _, _, err := get(ca.file("ca.pem"), stranger.file("named")); err == nil {
		t.Error("a client with a certificate of another CA was served")
	}

	// A certificate that cannot be used changes nothing; the next good one is taken.
	if err := os.WriteFile(ca.file("server.pem"), []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 2*time.Second; { // beyond the interval of looks
		if _, serial, err := get(ca.file("ca.pem"), ""); err != nil || serial != 100 {
			t.Fatalf("while the file is broken: serial %d, error %v", serial, err)
		}
	}
	ca.server(t, 200)
	for deadline := time.Now().Add(time.Minute); ; {
		_, serial, err := get(ca.file("ca.pem"), "")
		if err != nil {
			t.Fatal(err)
		}
		if serial == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not used")
		}
	}
}

// levels passes on the level of each line.
type levels struct {
	slog.Handler

	lines chan slog.Level
}

func (levels) Enabled(context.Context, slog.Level) bool { return true }

func (l levels) Handle(_ context.Context, r slog.Record) error {
	l.lines <- r.Level
	return nil
}

// What ends a connection before its handshake, as the checks of load balancers do, is no warning; what cannot encrypt is one.
func TestHandshakesInLog(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.server(t, 100)
	var config net.ListenConfig
	plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan slog.Level, 1)
	log := slog.New(levels{slog.DiscardHandler, lines})
	listener, err := httpserver.TLS{CertFile: ca.file("server.pem"), KeyFile: ca.file("server.key")}.Listener(plain, log)
	if err != nil {
		t.Fatal(err)
	}
	running := httpserver.Start(listener, http.NotFoundHandler(), log)
	for sent, want := range map[string]slog.Level{"": slog.LevelDebug, "GET / HTTP/1.1\r\n\r\n": slog.LevelWarn} {
		var dialer net.Dialer
		c, err := dialer.DialContext(t.Context(), "tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, sent)
		if err := errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
		if level := <-lines; level != want {
			t.Errorf("%q: logged as %s, want %s", sent, level, want)
		}
	}
	if err := running.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client is somebody while its certificate is valid and its CA is in the file, also on a connection
// that stays open.
func TestClientsOfOpenConnections(t *testing.T) {
	t.Parallel()
	ca, next := newAuthority(t), newAuthority(t)
	ca.server(t, 100)
	ca.issue(t, "named", &x509.Certificate{Subject: pkix.Name{CommonName: "ci"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	cas := ca.file("clients.pem")
	put := func(from *authority) {
		t.Helper()
		data, err := os.ReadFile(from.file("ca.pem"))
		if err == nil {
			err = os.WriteFile(cas, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(ca)
	var config net.ListenConfig
	plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	listener, err := httpserver.TLS{CertFile: ca.file("server.pem"), KeyFile: ca.file("server.key"), ClientCAFile: cas}.Listener(plain, log)
	if err != nil {
		t.Fatal(err)
	}
	running := httpserver.Start(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", httpserver.ClientName(r)) }), log)
	defer func() {
		if err := running.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	settings, err := httpserver.Trust{CAFile: ca.file("ca.pem"), CertFile: ca.file("named.pem"), KeyFile: ca.file("named.key")}.Config()
	if err != nil {
		t.Fatal(err)
	}
	// A Transport would open another connection when the machine is busy.
	conn, err := (&tls.Dialer{Config: settings}).DialContext(t.Context(), "tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	ask := func() string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+plain.Addr().String(), http.NoBody)
		if err == nil {
			err = req.Write(conn)
		}
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(replies, req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for i := range 3 {
		if name := ask(); name != `"ci"` {
			t.Fatalf("request %d: the client is %s", i, name)
		}
	}
	await := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			name := ask()
			if name == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the client is %s, want %s", name, want)
			}
		}
	}
	put(next)
	await(`""`)
	put(ca)
	await(`"ci"`)
	certificate := *ca.cert
	certificate.NotAfter = time.Now().Add(-time.Second)
	r := &http.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{&certificate}}}}
	if name := httpserver.ClientName(r); name != "" || !httpserver.ClientOutdated(r) {
		t.Errorf("with a certificate that has expired: %q, outdated: %v", name, httpserver.ClientOutdated(r))
	}
	certificate.NotAfter = time.Now().Add(time.Minute)
	if name := httpserver.ClientName(r); name == "" || httpserver.ClientOutdated(r) {
		t.Errorf("with one that has not: %q, outdated: %v", name, httpserver.ClientOutdated(r))
	}
	if httpserver.ClientOutdated(&http.Request{TLS: &tls.ConnectionState{}}) {
		t.Error("a client without a certificate: outdated")
	}
}

// A server whose certificate has expired says so when it starts.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, expired := range map[string]bool{"server": true, "good": false} {
		template := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		if expired {
			template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}
		ca.issue(t, name, template)
		var config net.ListenConfig
		plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		listener, err := httpserver.TLS{CertFile: ca.file(name + ".pem"), KeyFile: ca.file(name + ".key")}.Listener(plain, slog.New(slog.NewTextHandler(&lines, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		if said := strings.Contains(lines.String(), "it has expired"); said != expired {
			t.Errorf("%s: the log is %q, want an error: %t", name, lines.String(), expired)
		}
	}
}

// Files that cannot be used are refused when a server starts.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	ca.server(t, 1)
	for what, files := range map[string]httpserver.TLS{
		"no certificate":       {CertFile: ca.file("gone.pem"), KeyFile: ca.file("server.key")},
		"the key of another":   {CertFile: ca.file("server.pem"), KeyFile: other.file("ca.key")},
		"no CA of clients":     {CertFile: ca.file("server.pem"), KeyFile: ca.file("server.key"), ClientCAFile: ca.file("gone.pem")},
		"a key as CA":          {CertFile: ca.file("server.pem"), KeyFile: ca.file("server.key"), ClientCAFile: ca.file("server.key")},
		"a key as certificate": {CertFile: ca.file("server.key"), KeyFile: ca.file("server.key")},
	} {
		if _, err := files.Listener(nil, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if err := os.WriteFile(ca.file("encrypted.key"), []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (httpserver.Trust{CertFile: ca.file("server.pem"), KeyFile: ca.file("encrypted.key")}).Config(); err == nil || !strings.Contains(err.Error(), "has a passphrase") {
		t.Errorf("an encrypted key: %v", err)
	}
	if _, err := (httpserver.Trust{CAFile: ca.file("server.key")}).Config(); err == nil {
		t.Error("a key was trusted as a CA")
	}
	if settings, err := (httpserver.Trust{}).Config(); settings != nil || err != nil {
		t.Errorf("without a file: %v, %v", settings, err)
	}
}
