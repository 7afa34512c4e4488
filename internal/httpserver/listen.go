package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Listen listens on a TCP address. If the address is in use or not permitted, the error ends with another, which tells
// how to name another address.
func Listen(ctx context.Context, address, another string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w; %s", address, syscall.EADDRINUSE, another)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("listen on %s: %w, as for ports below 1024 without privileges; %s", address, syscall.EACCES, another)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// Loopback reports whether only this machine reaches a server that listens on a host.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
