package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// TLS names the files with which a server encrypts. Its zero value does not encrypt.
type TLS struct {
	CertFile string // PEM: the certificate, and those between it and its CA
	KeyFile  string // PEM
	// ClientCAFile, if not empty, holds the CAs of client certificates, as PEM. A client may
	// show one, which is then verified; see [ClientName].
	ClientCAFile string
}

// reloadInterval is the time between two looks at the files.
const reloadInterval = time.Second

// Listener returns a listener whose connections are encrypted. The files are read again when
// they change, for connections that begin later; files that cannot be used are logged to log,
// and the last good ones stay in use.
func (t TLS) Listener(inner net.Listener, log *slog.Logger) (net.Listener, error) {
	files := &certificates{files: t, log: log}
	if err := files.read(); err != nil {
		return nil, err
	}
	return encrypted{tls.NewListener(stallListener{inner}, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.config(), nil },
	}), files}, nil
}

// encrypted is a listener whose connections are encrypted.
type encrypted struct {
	net.Listener

	files *certificates
}

// Scheme is that of the URLs of a listener's server: https for one of [TLS.Listener].
func Scheme(listener net.Listener) string {
	if _, ok := listener.(encrypted); ok {
		return "https"
	}
	return "http"
}

// certificates are the present content of the files.
type certificates struct {
	files TLS
	log   *slog.Logger

	mu      sync.Mutex
	now     *tls.Config
	leaf    *x509.Certificate // of now
	told    bool              // the log says that clients refuse leaf
	looked  time.Time
	changed [3]time.Time // when each file was, at the last look
}

// config returns the configuration of a new connection.
func (c *certificates) config() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= reloadInterval && c.times() != c.changed {
		if err := c.load(); err != nil {
			c.log.Error("certificates refused, the old ones stay in use", "error", err)
		} else {
			c.log.Info("certificates read", "file", c.files.CertFile)
		}
	}
	c.tellRefused()
	return c.now
}

func (c *certificates) read() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return err
	}
	c.tellRefused()
	return nil
}

// tellRefused logs once that clients refuse the server because of the time.
func (c *certificates) tellRefused() {
	now := time.Now()
	if c.told || !now.Before(c.leaf.NotBefore) && !now.After(c.leaf.NotAfter) {
		return
	}
	c.told = true
	c.log.Error("clients refuse the certificate of this server, because it has expired or is not yet valid; replace the file, which is read without a restart",
		"file", c.files.CertFile, "valid_from", c.leaf.NotBefore, "valid_until", c.leaf.NotAfter)
}

// times are the times of the files' last changes. A missing file, such as while it is
// replaced, has the zero time.
func (c *certificates) times() (out [3]time.Time) {
	c.looked = time.Now()
	for i, path := range []string{c.files.CertFile, c.files.KeyFile, c.files.ClientCAFile} {
		if info, err := os.Stat(path); err == nil { //nolint:gosec,nolintlint // the operator's file, whoever asks
			out[i] = info.ModTime()
		}
	}
	return out
}

func (c *certificates) load() error {
	c.changed = c.times() // before reading: a later change is read again
	pair, err := keyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return err
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if c.files.ClientCAFile != "" {
		if next.ClientCAs, err = readCAs(x509.NewCertPool(), c.files.ClientCAFile); err != nil {
			return err
		}
		next.ClientAuth = tls.VerifyClientCertIfGiven
	}
	c.now, c.leaf, c.told = next, pair.Leaf, false
	return nil
}

// keyPair reads a certificate and its key.
func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil {
		return pair, nil
	}
	// A key that cannot be read is what err says.
	if key, _ := os.ReadFile(keyFile); bytes.Contains(key, []byte("ENCRYPTED")) { //nolint:gosec,nolintlint // the operator's file, whoever asks
		err = errors.New("the key has a passphrase; openssl pkey -in KEY -out FILE writes it without one")
	}
	return pair, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
}

// readCAs adds the certificates of a PEM file to a pool.
func readCAs(pool *x509.CertPool, path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path) //nolint:gosec,nolintlint // the operator's file, whoever asks
	if err != nil {
		return nil, fmt.Errorf("CA certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("CA certificates: %s holds none in PEM", path)
	}
	return pool, nil
}

// Trust is whom a client trusts, and what it shows to servers that ask for a certificate. The
// zero value trusts the CAs of the system and shows nothing.
type Trust struct {
	CAFile            string // PEM: CAs that are trusted besides those of the system
	CertFile, KeyFile string // PEM: both or neither
}

// Config returns the configuration of a client; nil, the default of clients, for the zero
// value. The certificate is read again for each connection, so that it may be replaced.
func (t Trust) Config() (*tls.Config, error) {
	if t == (Trust{}) {
		return nil, nil
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("a client certificate and its key: one of them is given, must be both or neither")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool() // a system without any
		}
		if config.RootCAs, err = readCAs(pool, t.CAFile); err != nil {
			return nil, err
		}
	}
	if t.CertFile != "" {
		shown := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := keyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("client %w", err)
			}
			return &pair, nil
		}
		if _, err := shown(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = shown
	}
	return config, nil
}

// Untrusted reports whether a request has failed because one side does not accept the certificate
// of the other, or the server does not encrypt. The next try fails as well, until somebody has
// changed a certificate, a clock or a URL.
func Untrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err) // such as an expired one
	// An alert of the server has no type of its own.
	alert, ok := errors.AsType[*net.OpError](err)
	refused := ok && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate")
	return unknown || name || invalid || refused || errors.Is(err, http.ErrSchemeMismatch)
}

// ClientName is the name in the client certificate of a request, which was verified: its
// first URI (such as a SPIFFE id), or else its common name. It is empty if there is none, and
// once the certificate has expired or its CA is no longer in the file, also on a connection that
// began before.
func ClientName(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || ClientOutdated(r) {
		return ""
	}
	shown := r.TLS.VerifiedChains[0][0]
	if len(shown.URIs) > 0 {
		return shown.URIs[0].String()
	}
	return shown.Subject.CommonName
}

// ClientOutdated reports whether the client certificate of a request was verified when its
// connection began, and is not recognised any more. The client may show another one in its next
// connection.
func ClientOutdated(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return false
	}
	now := time.Now()
	for _, certificate := range r.TLS.VerifiedChains[0] {
		if now.After(certificate.NotAfter) {
			return true
		}
	}
	c, ok := r.Context().Value(clientKey{}).(*client)
	return ok && !c.trusted(r.TLS.PeerCertificates)
}

// clientKey is the key of a connection's context under which its *client is.
type clientKey struct{}

// client is the other end of an encrypted connection.
type client struct {
	files *certificates

	mu  sync.Mutex
	cas *x509.CertPool // against which its certificate was verified last; nil is not yet
	ok  bool
}

// inConnection adds the client of a connection to its context.
func (c *certificates) inConnection(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, &client{files: c})
}

// trusted reports whether a certificate, which comes with those between it and its CA, is verified
// by the current CAs.
func (c *client) trusted(shown []*x509.Certificate) bool {
	cas := c.files.config().ClientCAs
	c.mu.Lock()
	defer c.mu.Unlock()
	if cas == nil || len(shown) == 0 {
		return false
	}
	if c.cas != cas {
		between := x509.NewCertPool()
		for _, certificate := range shown[1:] {
			between.AddCert(certificate)
		}
		_, err := shown[0].Verify(x509.VerifyOptions{Roots: cas, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		c.cas, c.ok = cas, err == nil
	}
	return c.ok
}
