package execution

import (
	"net"
	"testing"
)

func TestClientURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ ip, want string }{
		{"127.0.0.1", "http://127.0.0.1:80"},
		{"0.0.0.0", "http://127.0.0.1:80"},
		{"::", "http://[::1]:80"},
		{"10.1.2.3", "http://10.1.2.3:80"},
	} {
		if got := ClientURL(fixedAddr{ip: test.ip}); got != test.want {
			t.Errorf("ClientURL(%s) = %s, want %s", test.ip, got, test.want)
		}
	}
}

type fixedAddr struct {
	net.Listener
	ip string
}

func (a fixedAddr) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.ip), Port: 80} }
