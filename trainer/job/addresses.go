package job

import (
	"cmp"
	"net"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/trainer/runfile"
)

// checkListen refuses an address that other machines can reach if what is sent there can be
// read on its way.
func (c Config) checkListen(key, address string, tls runfile.TLS) error {
	if c.Role == execution.RoleRunner || loopback(address) || tls.Cert != "" || tls.Insecure {
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "%s.listen: got %s, which others can reach, and read what is sent: set %s.tls_cert and %s.tls_key (agl cert makes them), or allow it with %s.insecure: true", key, address, key, key, key)
}

// checkReach checks whether runners elsewhere, if there may be any, reach the models:
// an address that agents cannot be told is an error; one that only this machine
// reaches is worth a notice.
func (c Config) checkReach(token string) (notice string, err error) {
	p, s := cmp.Or(c.File.Proxy, &runfile.Proxy{}), c.File.Store
	if c.Role != execution.RoleRunner && !loopback(s.Listen) && token == "" {
		return "", agl.Errorf(agl.CodeInvalid, "store.listen: got %s, which others can reach: set store.token, or AGL_TOKEN", s.Listen)
	}
	if err := c.checkListen("store", s.Listen, s.TLS); err != nil {
		return "", err
	}
	if host, _, err := net.SplitHostPort(p.Listen); err == nil && unspecified(host) && p.Config.PublicURL == "" {
		return "", agl.Errorf(agl.CodeInvalid, "proxy.public_url: none given, and proxy.listen is %s: agents must be told the address of the proxy", p.Listen)
	}
	if c.Role != execution.RoleRunner && !loopback(p.Listen) && p.Config.KeySecret == "" {
		return "", agl.Errorf(agl.CodeInvalid, "proxy.listen: got %s, which others can reach, and the proxy would forward anybody's calls with its keys: set proxy.key_secret", p.Listen)
	}
	if err := c.checkListen("proxy", p.Listen, p.TLS); err != nil {
		return "", err
	}
	if loopback(s.Listen) || !loopback(p.Listen) {
		return "", nil
	}
	return "runners on other machines reach the store, but not the models: set proxy.listen, and proxy.public_url", nil
}

// loopback reports whether only this machine reaches an address; empty stands for a
// loopback address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err != nil || httpserver.Loopback(host)
}

// unspecified reports whether a server of that host listens on every address.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// dialable reports whether a client can connect to the address of a listener as it is.
func dialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && !unspecified(host) && port != "" && port != "0"
}
