// Package httpproxy keeps the HTTP proxy of a company out of the way between programs of one machine.
package httpproxy

import (
	"slices"
	"strings"
)

// loopback are the addresses at which agl serves models and stores to programs of the same machine. Without ::1: versions
// of Python's httpx fail at a NO_PROXY with it.
var loopback = []string{"localhost", "127.0.0.1"}

// Bypass returns the environment env with NO_PROXY and no_proxy such that a program reaches servers of its own machine
// directly. Go programs always do; those with Python's or other libraries would ask the HTTP proxy for them. Without an
// HTTP proxy in env, env is returned as it is.
func Bypass(env []string) []string {
	if !slices.ContainsFunc([]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}, func(name string) bool {
		return value(env, name) != "" || value(env, strings.ToLower(name)) != ""
	}) {
		return env
	}
	upper, lower := value(env, "NO_PROXY"), value(env, "no_proxy")
	env = slices.Clone(env)
	for _, v := range [][3]string{{"NO_PROXY", upper, lower}, {"no_proxy", lower, upper}} {
		hosts := v[1]
		if hosts == "" {
			hosts = v[2] // programs read one of the two, and not the same one
		}
		env = append(env, v[0]+"="+with(hosts))
	}
	return env
}

// with adds the loopback addresses to a list of hosts.
func with(hosts string) string {
	if strings.TrimSpace(hosts) == "*" { // everything; in a list it means nothing to Python
		return hosts
	}
	list := strings.FieldsFunc(hosts, func(r rune) bool { return r == ',' || r == ' ' })
	for _, host := range loopback {
		if !slices.Contains(list, host) {
			list = append(list, host)
		}
	}
	return strings.Join(list, ",")
}

// value returns the value of a variable, "" if it is not set. The last one counts.
func value(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, found := strings.CutPrefix(v, name+"="); found {
			return value
		}
	}
	return ""
}
