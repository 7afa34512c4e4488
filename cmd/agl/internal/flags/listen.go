package flags

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
)

// Listen has the flags of a server. Its command sets the variable port to the default port.
type Listen struct {
	Host         string         `default:"127.0.0.1" help:"Address to listen on."`
	Port         Port           `default:"${port}" help:"Port to listen on; 0 picks a free one."`
	NoAuth       bool           `help:"Allow an address that other machines can reach, although callers need no credentials."`
	Insecure     bool           `help:"Allow an address that other machines can reach without TLS, such as inside a network that encrypts."`
	TrustedProxy []TrustedProxy `sep:"none" placeholder:"ADDRESS" help:"A proxy with this address or network (10.0.0.0/8) is in front: it does TLS, and X-Forwarded-For of its requests names the client; repeat it for several."`
	TLSCert      Path           `name:"tls-cert" placeholder:"FILE" help:"Encrypt with the certificate in this PEM file. It is read again when it changes. See agl cert."`
	TLSKey       Path           `name:"tls-key" placeholder:"FILE" help:"The key of --tls-cert, as PEM."`
	TLSClientCA  Path           `name:"tls-client-ca" placeholder:"FILE" help:"Verify the certificates of clients that show one with the CA certificates in this PEM file."`
	DrainTimeout time.Duration  `default:"10s" help:"On SIGTERM or SIGINT, finish accepted requests for at most this long."`

	loopbackOnly bool // set by Check: callers need no credentials
}

// Check refuses an address that other machines can reach if the server requires no credentials. advice says what to do.
func (f *Listen) Check(authenticates bool, advice string) error {
	if _, _, err := net.SplitHostPort(f.Host); err == nil || strings.ContainsAny(f.Host, "[]/") {
		return fmt.Errorf("--host: got %q, must be an address or a name alone, such as 127.0.0.1 or ::1; the port is --port", f.Host)
	}
	f.loopbackOnly = !authenticates && !f.NoAuth
	loopback := httpserver.Loopback(f.Host)
	if !loopback && f.loopbackOnly {
		return fmt.Errorf("--host=%s: others can reach this address: %s", f.Host, advice)
	}
	if !loopback && f.clear() {
		return fmt.Errorf("--host=%s: others can reach this address, and read what is sent: %s", f.Host, clearAdvice)
	}
	if (f.TLSCert == "") != (f.TLSKey == "") || f.TLSClientCA != "" && f.TLSCert == "" {
		return errors.New("--tls-cert, --tls-key: give both, or neither; --tls-client-ca needs them")
	}
	if f.DrainTimeout < 0 {
		return fmt.Errorf("--drain-timeout=%s: must not be negative", f.DrainTimeout)
	}
	return nil
}

// clear reports whether others must not reach the server because it does not encrypt. A server
// without credentials has no secret to protect, and --no-auth has allowed it.
func (f *Listen) clear() bool {
	return f.TLSCert == "" && !f.Insecure && !f.NoAuth && len(f.TrustedProxy) == 0
}

const clearAdvice = "give --tls-cert and --tls-key (agl cert makes them), --trusted-proxy if a proxy does TLS, or allow it with --insecure"

// encrypt returns the listener with TLS, if the flags have a certificate.
func (f *Listen) encrypt(listener net.Listener, log *slog.Logger) (net.Listener, error) {
	if f.TLSCert == "" {
		return listener, nil
	}
	encrypted, err := httpserver.TLS{CertFile: string(f.TLSCert), KeyFile: string(f.TLSKey), ClientCAFile: string(f.TLSClientCA)}.Listener(listener, log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", errors.Join(err, listener.Close()))
	}
	return encrypted, nil
}

// URL is the server's base URL.
func (f *Listen) URL(listener net.Listener) string {
	scheme := "http"
	if f.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + listener.Addr().String()
}

// Trusted are the networks of the proxies in front.
func (f *Listen) Trusted() []netip.Prefix {
	out := make([]netip.Prefix, len(f.TrustedProxy))
	for i, p := range f.TrustedProxy {
		out[i] = p.Prefix
	}
	return out
}

// TrustedProxy is the address or the network of proxies.
type TrustedProxy struct{ netip.Prefix }

// UnmarshalText reads an address or a network.
func (p *TrustedProxy) UnmarshalText(text []byte) (err error) {
	if p.Prefix, err = netip.ParsePrefix(string(text)); err == nil {
		return nil
	}
	address, err := netip.ParseAddr(string(text))
	if err != nil {
		return fmt.Errorf("got %q, must be an address such as 10.0.0.1, or a network such as 10.0.0.0/8", text)
	}
	p.Prefix = netip.PrefixFrom(address, address.BitLen())
	return nil
}

// OpenPort listens, with TLS if the flags have a certificate: files that cannot be used are an error before
// the server opens anything else. The error for a port in use names the flag to change. A socket that
// the parent has passed to this process, as systemd does, is used instead: it stays
// open when the process ends, so that clients can wait for the next one.
func (f *Listen) OpenPort(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	listener, err := passedSocket(os.Getenv)
	if listener != nil || err != nil {
		listener, err = f.admit(listener, err)
	} else {
		address := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		listener, err = httpserver.Listen(ctx, address, "choose another with --port")
	}
	if err != nil {
		return nil, err
	}
	return f.encrypt(listener, log)
}

// admit refuses a passed socket that other machines can reach if the server requires no
// credentials, as Check does for the flags.
func (f *Listen) admit(passed net.Listener, err error) (net.Listener, error) {
	if err != nil {
		return nil, err
	}
	tcp, ok := passed.Addr().(*net.TCPAddr)
	if ok && !tcp.IP.IsLoopback() && f.loopbackOnly {
		return nil, errors.Join(fmt.Errorf("the socket that was passed to this process listens on %s, which others can reach: set a token, or allow it with --no-auth", tcp), passed.Close())
	}
	if ok && !tcp.IP.IsLoopback() && f.clear() {
		return nil, errors.Join(fmt.Errorf("the socket that was passed to this process listens on %s, which others can reach, and read what is sent: %s", tcp, clearAdvice), passed.Close())
	}
	return passed, nil
}

// passedSocket returns the listener that was passed to this process, nil if none was
// (sd_listen_fds(3)).
func passedSocket(getenv func(string) string) (net.Listener, error) {
	const first = 3
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if count := getenv("LISTEN_FDS"); count != "1" {
		return nil, fmt.Errorf("LISTEN_FDS=%s: this process was passed as many sockets, and takes one", count)
	}
	file := os.NewFile(first, "LISTEN_FDS")
	defer file.Close() // FileListener duplicates it
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the socket that was passed to this process (LISTEN_FDS): %w", err)
	}
	return listener, nil
}

// Port is a TCP port; 0 picks a free one.
type Port uint16

// UnmarshalText reads a port.
func (p *Port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil {
		return fmt.Errorf("got %q, must be a port number, 0 to 65535 (0 picks a free one)", text)
	}
	*p = Port(n)
	return nil
}
