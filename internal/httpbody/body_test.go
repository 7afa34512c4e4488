package httpbody

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// A body in parts reads as one, as often as it is needed, and has the length that is announced.
func TestBody(t *testing.T) {
	t.Parallel()
	for _, parts := range [][]string{{}, {""}, {"a"}, {"", "ab", "", "c", ""}, {strings.Repeat("x", 70_000), "y", strings.Repeat("z", 3)}} {
		want := strings.Join(parts, "")
		body := &Body{}
		for _, part := range parts {
			body.parts = append(body.parts, []byte(part))
		}
		if body.Len() != int64(len(want)) || string(body.Bytes()) != want {
			t.Errorf("%d parts: %d bytes, %.50q", len(parts), body.Len(), body.Bytes())
		}
		for range 2 {
			if err := iotest.TestReader(body.Reader(), []byte(want)); err != nil {
				t.Errorf("%d parts: %v", len(parts), err)
			}
		}
		body.Free()
		if n, err := body.Reader().Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
			t.Errorf("after Free: %d, %v", n, err)
		}
	}
}

// A connection takes the parts of a body as they are, as much as is asked for, and nothing once they are freed.
func TestBodyToConnection(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dial := Dial(new(net.Dialer).DialContext)
	for _, parts := range [][]string{{"a"}, {"", "ab", "", "c", ""}, {strings.Repeat("x", 1<<20), "y", strings.Repeat("z", 70_000), "w"}} {
		want := strings.Join(parts, "")
		body := &Body{}
		for _, part := range parts {
			body.parts = append(body.parts, []byte(part))
		}
		client, err := dial(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string)
		go func() {
			text, err := io.ReadAll(server)
			if err != nil {
				text = []byte(err.Error())
			}
			got <- string(text)
		}()
		to, ok := client.(io.ReaderFrom)
		if !ok {
			t.Fatal("the connection does not take bodies")
		}
		from := body.Reader()
		for _, limit := range []int{1, len(want) / 2, len(want)} {
			if _, err := to.ReadFrom(io.LimitReader(from, int64(limit))); err != nil {
				t.Errorf("%d parts: %v", len(parts), err)
			}
		}
		if rest, err := io.ReadAll(from); err != nil || len(rest) > 0 {
			t.Errorf("%d parts: %d bytes are left, %v", len(parts), len(rest), err)
		}
		body.Free()
		if n, err := to.ReadFrom(io.LimitReader(body.Reader(), 1)); n != 0 || !errors.Is(err, errFreed) {
			t.Errorf("after Free: %d, %v", n, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if text := <-got; text != want {
			t.Errorf("%d parts: got %d bytes, want %d", len(parts), len(text), len(want))
		}
		_ = server.Close() // its reading has ended
	}
}

// A connection that takes nothing more holds the memory of a body only until it is closed.
func TestBodyToStuckConnection(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe() // without a buffer; nobody reads
	defer func() { _ = there.Close() }()
	c := &conn{Conn: here, over: make(chan struct{})}
	body := &Body{parts: [][]byte{make([]byte, 1<<20)}}
	wrote, freed := make(chan error), make(chan struct{})
	go func() {
		_, err := c.ReadFrom(io.LimitReader(body.Reader(), 1<<20))
		wrote <- err
	}()
	if _, err := there.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	go func() {
		body.Free()
		close(freed)
	}()
	select {
	case <-freed:
		t.Error("memory was freed while it was written")
	case err := <-wrote:
		t.Errorf("the write ended: %v", err)
	default:
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-wrote; err == nil {
		t.Error("the closed connection has taken all")
	}
	<-freed
}
