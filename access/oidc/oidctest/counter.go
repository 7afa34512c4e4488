package oidctest

import (
	"io"
	"net/http"
	"sync"
	"testing"
)

// counter counts requests by their paths.
type counter struct {
	next http.Handler

	mu    sync.Mutex
	paths map[string]int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.paths[r.URL.Path]++
	c.mu.Unlock()
	c.next.ServeHTTP(w, r)
}

func (c *counter) of(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paths[path]
}

func fetch(tb testing.TB, client *http.Client, r *http.Request) string {
	tb.Helper()
	response, err := client.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(body)
}
