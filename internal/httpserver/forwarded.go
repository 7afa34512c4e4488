package httpserver

import (
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
			r.RemoteAddr = clientAddress(r.Header["X-Forwarded-For"], from, trusted).String()
		}
		next.ServeHTTP(w, r)
	})
}

// clientAddress returns the last address in the lists that is not a trusted proxy's, with port 0 if the list has no port for it.
// The client may have forged the addresses before it.
func clientAddress(lists []string, last netip.AddrPort, trusted []netip.Prefix) netip.AddrPort {
	hops := strings.Split(strings.Join(lists, ","), ",")
	for _, hop := range slices.Backward(hops) {
		hop = strings.TrimSpace(hop)
		address, err := netip.ParseAddr(hop)
		client := netip.AddrPortFrom(address, 0)
		if err != nil {
			if client, err = netip.ParseAddrPort(hop); err != nil { // some proxies name the port, too
				return last
			}
		}
		last = client
		if !isTrusted(trusted, client.Addr()) {
			return client
		}
	}
	return last
}

func isTrusted(trusted []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}
