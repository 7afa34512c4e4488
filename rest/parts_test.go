package rest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// gauge counts the bytes of parts that a connection takes without a copy.
type gauge struct {
	partsConn

	taken *atomic.Int64
}

func (g gauge) ReadFrom(r io.Reader) (int64, error) {
	n, err := g.partsConn.ReadFrom(r)
	if limited, ok := r.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*partsReader); ok {
			g.taken.Add(n)
		}
	}
	return n, err
}

// A body in parts reaches the connection as it is, past net/http's buffers.
func TestPartsAreNotCopied(t *testing.T) {
	t.Parallel()
	received := make(chan int64, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		received <- n
	}))
	defer server.Close()
	transport := newTransport()
	defer transport.CloseIdleConnections()
	var taken atomic.Int64
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		parts, ok := conn.(partsConn)
		if !ok {
			t.Errorf("a connection is %T", conn)
			return conn, nil
		}
		return gauge{parts, &taken}, nil
	}
	body := &parts{}
	for range 50 {
		body.list = append(body.list, make([]byte, 40<<10), []byte{','})
	}
	size := body.size()
	client, err := NewClient(ClientConfig{URL: server.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.do(t.Context(), exchange{op: "test", method: http.MethodPost, path: "/", parts: body}, nil); err != nil {
		t.Fatal(err)
	}
	if n := <-received; n != size {
		t.Errorf("%d bytes arrived, want %d", n, size)
	}
	// The first of them fill the buffer that has the header.
	if n := taken.Load(); n < size-8<<10 {
		t.Errorf("%d of %d bytes were not copied", n, size)
	}
}
