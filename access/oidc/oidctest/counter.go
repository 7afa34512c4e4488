package oidctest

import (
	"net/http"
	"sync"
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
