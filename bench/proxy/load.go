package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/internal/backoff"
)

// target is where calls go. Each worker of the load has paths of its own.
type target struct {
	base string
	path func(worker int) string
	key  string
}

// tolerated is the number of failed calls of one worker after which a measurement ends. Fewer are only reported.
const tolerated = 3

// newTransport returns a transport that keeps this number of connections open.
func newTransport(connections int) *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
}

// drive makes calls over a number of connections for a time.
func drive(ctx context.Context, transport *http.Transport, to target, workload string, connections int, span time.Duration) (bench.Calls, error) {
	body := request(workload)
	return bench.Load(ctx, connections, span, tolerated, func(worker, _ int) error { return one(ctx, transport, to, worker, body) })
}

func newRequest(ctx context.Context, to target, worker int, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.base+to.path(worker), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if to.key != "" {
		req.Header.Set("Authorization", "Bearer "+to.key)
	}
	return req, nil
}

func one(ctx context.Context, transport *http.Transport, to target, worker int, body string) error {
	req, err := newRequest(ctx, to, worker, body)
	if err != nil {
		return err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", to.base, res.Status)
	}
	return nil
}

// firstByte returns the times from a request to the first byte of its reply, of n
// calls on one connection with a pause between each two.
func firstByte(ctx context.Context, to target, n int, pause time.Duration) ([]time.Duration, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(to.base, "http://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	body := request("small")
	raw := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", to.path(0), len(body), body)
	in := bufio.NewReader(conn)
	times := make([]time.Duration, n)
	for i := range times {
		if err := backoff.Sleep(ctx, pause); err != nil {
			return nil, err
		}
		at := time.Now()
		if _, err := conn.Write(raw); err != nil {
			return nil, err
		}
		if _, err := in.Peek(1); err != nil {
			return nil, err
		}
		times[i] = time.Since(at)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return nil, err
		}
		res.Body.Close()
	}
	return times, nil
}

// open opens streams, reads their first events, and returns a function that closes them.
func open(ctx context.Context, to target, n int) (closeAll func(), err error) {
	transport := &http.Transport{DisableCompression: true}
	var bodies []io.Closer
	closeAll = func() {
		for _, b := range bodies {
			b.Close()
		}
		transport.CloseIdleConnections()
	}
	first := make([]byte, 1)
	for i := range n {
		req, err := newRequest(ctx, to, i, request("hold"))
		if err != nil {
			return closeAll, err
		}
		res, err := transport.RoundTrip(req) //nolint:bodyclose // closeAll does
		if err != nil {
			return closeAll, err
		}
		bodies = append(bodies, res.Body)
		if _, err := res.Body.Read(first); err != nil {
			return closeAll, err
		}
	}
	return closeAll, nil
}
