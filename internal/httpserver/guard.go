package httpserver

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard refuses requests that a web page of another site makes a browser send. Requests
// of programs that are not browsers pass.
type Guard struct {
	crossOrigin *http.CrossOriginProtection // nil if pages of every origin may call
	hosts       []string
}

// NewGuard returns a guard. Pages of the origins, such as https://app.example, may call;
// "*" is every origin. The hosts are the names under which the server may be called,
// besides addresses and localhost; if nil, every name passes.
//
// Checking the name stops DNS rebinding, in which a page's own name is made to point to
// the server: the browser then takes both for one site. Servers that ask for a token
// need no such check, since the page does not have it.
func NewGuard(origins, hosts []string) (*Guard, error) {
	g := &Guard{hosts: slices.Clone(hosts)}
	if slices.Contains(origins, "*") {
		return g, nil
	}
	g.crossOrigin = http.NewCrossOriginProtection()
	for _, origin := range origins {
		if err := g.crossOrigin.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("got %q, must be an origin such as https://app.example, or *: %w", origin, err)
		}
	}
	return g, nil
}

// Check returns why a request is refused, nil if it is not. Requests that change nothing
// (GET, HEAD, OPTIONS) are only checked for their host.
func (g *Guard) Check(r *http.Request) error {
	if g.hosts != nil && !LocalHost(r.Host) && !slices.ContainsFunc(g.hosts, func(host string) bool { return strings.EqualFold(host, hostname(r.Host)) }) {
		return fmt.Errorf("header Host: got %q, a name that this server was not told to have", r.Host)
	}
	if g.crossOrigin != nil {
		if err := g.crossOrigin.Check(r); err != nil {
			if r.Header.Get("Sec-Fetch-Site") == "" { // sent over HTTPS and to localhost only
				return fmt.Errorf("header Origin: got %q, must be this server's own, which is that of the header Host, %q (a proxy in front must pass it on), or one that it was told to allow", r.Header.Get("Origin"), r.Host)
			}
			return fmt.Errorf("header Origin: got %q, must be this server's own or one that it was told to allow: %w", r.Header.Get("Origin"), err)
		}
	}
	if kind := r.Header.Get("Content-Type"); fromPage(r) && r.ContentLength != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead && simple(kind) {
		return fmt.Errorf("header Content-Type: got %q, must be that of what is sent, such as application/json: pages of every site can send such a body", kind)
	}
	return nil
}

// fromPage reports whether a web page has made a request: programs send no Origin.
func fromPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") != "" || site != "" && site != "none"
}

// simple reports whether a page can send a body of this type to any server without a preflight
// request (CORS, Fetch standard, 2.2.2).
func simple(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType) // "" for an invalid type
	switch kind {
	case "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return true
	}
	return false
}

// LocalHost reports whether the Host of a request is an address or localhost, which no
// page of another site can have as its own name.
func LocalHost(host string) bool {
	name := hostname(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// Rebound reports whether a web page may have made a request to a server that it reached by making
// its own name point there (DNS rebinding): the browser then takes both for one site. Programs may
// use any name; they send no Origin.
func Rebound(r *http.Request) bool { return fromPage(r) && !LocalHost(r.Host) }

// hostname is a Host without its port, as names are compared.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
