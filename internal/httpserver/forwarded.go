package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwarded gives requests that come through trusted proxies the address of the client that
// the proxies name in X-Forwarded-For. Others keep theirs, whatever they claim.
func forwarded(next http.Handler, trusted []netip.Prefix) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && isTrusted(trusted, from.Addr()) {
			r.RemoteAddr = net.JoinHostPort(clientAddress(r.Header["X-Forwarded-For"], from.Addr(), trusted).String(), "0")
		}
		next.ServeHTTP(w, r)
	})
}

// clientAddress is the last address of the lists that no trusted proxy has. What stands before
// it was written by the client.
func clientAddress(lists []string, last netip.Addr, trusted []netip.Prefix) netip.Addr {
	hops := strings.Split(strings.Join(lists, ","), ",")
	for _, hop := range slices.Backward(hops) {
		hop = strings.TrimSpace(hop)
		address, err := netip.ParseAddr(hop)
		if err != nil {
			withPort, err := netip.ParseAddrPort(hop) // some proxies name the port, too
			if err != nil {
				return last
			}
			address = withPort.Addr()
		}
		last = address
		if !isTrusted(trusted, address) {
			return address
		}
	}
	return last
}

func isTrusted(trusted []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}
