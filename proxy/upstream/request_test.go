package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/internal/memnet"
)

// A call does not wait for a backend whose HTTP/2 connection is dead, nor do the calls after it: they would share the connection.
func TestDeadConnectionOfHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := memnet.Listen()
		transport := NewTransport()
		defer transport.CloseIdleConnections()
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
		transport.DialContext = listener.Dial
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty frame of them, the only one that arrives
			go func() { _, _ = io.WriteString(conn, settings) }()   // the transport closes the connection
			_, _ = io.Copy(io.Discard, conn)
		}()
		start := time.Now()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://backend/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err == nil {
			t.Fatal("the call was answered", res.Body.Close())
		}
		if took := time.Since(start); took > time.Minute || !brokeOff(err) {
			t.Errorf("the call failed after %s: %v; it does not count as broken off: %t", took, err, !brokeOff(err))
		}
	})
}
