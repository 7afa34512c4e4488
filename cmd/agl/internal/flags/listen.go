package flags

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Listen has the flags of a server. Its command sets the variable port to the default port.
type Listen struct {
	Host         string        `default:"127.0.0.1" help:"Address to listen on."`
	Port         Port          `default:"${port}" help:"Port to listen on; 0 picks a free one."`
	NoAuth       bool          `help:"Allow an address that other machines can reach, although callers need no credentials."`
	DrainTimeout time.Duration `default:"10s" help:"On SIGTERM or SIGINT, finish accepted requests for at most this long."`

	loopbackOnly bool // set by Check: callers need no credentials
}

// Check refuses an address that other machines can reach if the server requires no credentials. advice says what to do.
func (f *Listen) Check(authenticates bool, advice string) error {
	f.loopbackOnly = !authenticates && !f.NoAuth
	ip := net.ParseIP(f.Host)
	loopback := f.Host == "localhost" || (ip != nil && ip.IsLoopback())
	if !loopback && f.loopbackOnly {
		return fmt.Errorf("--host=%s: others can reach this address: %s", f.Host, advice)
	}
	if f.DrainTimeout < 0 {
		return fmt.Errorf("--drain-timeout=%s: must not be negative", f.DrainTimeout)
	}
	return nil
}

// OpenPort listens. The error for a port in use names the flag to change. A socket that
// the parent has passed to this process, as systemd does, is used instead: it stays
// open when the process ends, so that clients can wait for the next one.
func (f *Listen) OpenPort(ctx context.Context) (net.Listener, error) {
	if passed, err := passedSocket(os.Getenv); passed != nil || err != nil {
		return f.admit(passed, err)
	}
	address := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: address already in use; choose another with --port", address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
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
