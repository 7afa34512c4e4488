// Package gateway_test runs several servers of the gateway on one PostgreSQL database.
// run.sh beside it runs the real Agent-lightning v1.0.
package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

var database = postgrestest.Shared{Config: postgrestest.Stores()}

func TestMain(m *testing.M) { os.Exit(database.Run(m)) }

// open starts a server with a store engine of its own.
func open(t *testing.T, url string) *httptest.Server {
	t.Helper()
	engine, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Store: engine, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	t.Cleanup(func() {
		server.Close()
		g.Close()
		if err := engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return server
}

func send(t *testing.T, server *httptest.Server, method, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := server.Client().Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(raw)
}

// Every client requests the same changes from every server. Each change must happen once, and
// all servers must show the same rollouts, events and log.
func TestServersOnOneDatabase(t *testing.T) {
	t.Parallel()
	url := database.Database(t)
	servers := []*httptest.Server{open(t, url), open(t, url), open(t, url)}
	const rollouts = 25
	var wait sync.WaitGroup
	var running, ended atomic.Int64
	for _, server := range servers {
		wait.Go(func() {
			for n := range rollouts {
				id := fmt.Sprintf("/api/rollouts/r%d", n)
				send(t, server, "POST", "/api/rollouts", fmt.Sprintf(`[{"input":%d,"rollout_id":"r%d"}]`, n, n))
				if status, _ := send(t, server, "PATCH", id, `{"status":{"state":"running"}}`); status == http.StatusOK {
					running.Add(1)
				}
				if status, answer := send(t, server, "POST", id+"/attempt/0/events", `{"event_type":"reward","data":{"value":1}}`); status != http.StatusOK {
					t.Errorf("event: got %d %s", status, answer)
				}
				if status, _ := send(t, server, "PATCH", id, `{"status":{"state":"succeeded"}}`); status == http.StatusOK {
					ended.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if running.Load() != rollouts || ended.Load() != rollouts {
		t.Errorf("transitions: got %d and %d, want %d of each", running.Load(), ended.Load(), rollouts)
	}
	_, want := log(t, servers[0], rollouts)
	for _, server := range append(servers, open(t, url)) { // and a server that has seen nothing of it
		if items, got := log(t, server, rollouts); got != want || items != rollouts {
			t.Errorf("log: got %d items %s\nwant %s", items, got, want)
		}
		for n := range rollouts {
			_, answer := send(t, server, "GET", fmt.Sprintf("/api/rollouts/r%d/events", n), "")
			var events []any
			if err := json.Unmarshal([]byte(answer), &events); err != nil || len(events) != len(servers) {
				t.Errorf("events of r%d: got %d and %v, want %d", n, len(events), err, len(servers))
			}
		}
	}
}

// log waits until a server has this number of log entries.
func log(t *testing.T, server *httptest.Server, total int) (items int, answer string) {
	t.Helper()
	for {
		_, answer = send(t, server, "GET", "/api/rollouts/terminal?wait=1", "")
		var page struct {
			Items []any `json:"items"`
			Total int   `json:"total_terminal"`
		}
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		if page.Total >= total || t.Context().Err() != nil {
			return len(page.Items), answer
		}
	}
}

// Models and the pause that are set at one server must apply at the others.
func TestSettingsOfAllServers(t *testing.T) {
	t.Parallel()
	url := database.Database(t)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer backend.Close()
	a, b := open(t, url), open(t, url)
	send(t, a, "POST", "/api/rollouts", `[{"input":1,"rollout_id":"r"}]`)
	const call = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions"
	var wait sync.WaitGroup
	for n, server := range []*httptest.Server{a, b, a, b} {
		wait.Go(func() {
			send(t, server, "POST", "/api/models", fmt.Sprintf(`[{"model":"m","endpoint":"%s/%d"}]`, backend.URL, n))
		})
	}
	wait.Wait()
	for _, step := range []struct {
		path, body string
		want       int
	}{{"", "", http.StatusOK}, {"/proxy/pause", "{}", http.StatusTooManyRequests}, {"/proxy/resume", "", http.StatusOK}} {
		if step.path != "" {
			send(t, a, "POST", step.path, step.body)
		}
		deadline := time.Now().Add(10 * time.Second)
		for _, server := range []*httptest.Server{a, b} {
			status := 0
			for status != step.want && time.Now().Before(deadline) {
				status, _ = send(t, server, "POST", call, "{}")
			}
			if status != step.want {
				t.Errorf("after %q: got %d, want %d", step.path, status, step.want)
			}
		}
	}
	if status, answer := send(t, b, "DELETE", "/api/models", ""); status != http.StatusOK {
		t.Errorf("got %d %s", status, answer)
	}
}
