package execution

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl/rest/client"
)

// TestDialStoreNotice has a store begin to answer after some tries.
func TestDialStoreNotice(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) <= triesBeforeNotice+1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(late.Close)
	var log bytes.Buffer
	_, closeStore, err := dialStore(t.Context(), client.Config{URL: late.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := closeStore(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "does not answer yet"); n != 1 {
		t.Errorf("%d notices:\n%s", n, log.String())
	}
}

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
