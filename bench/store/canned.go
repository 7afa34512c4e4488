package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/bench/internal/bench"
)

// The roles in which the program serves canned replies instead of measuring.
const (
	roleCanned   = "canned"
	roleFlushed  = "flushed"  // durable in a file
	roleInserted = "inserted" // durable in PostgreSQL
)

// serveFlushed serves canned replies, and before it answers a request that changes something, the request's body is on
// the disk: the least work of a durable server.
func serveFlushed([]string) error {
	file, err := os.CreateTemp("", "agl-bench-flushed-")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil { // now, because this process is killed
		return err
	}
	return serveCanned(newCommits(func(batch []byte) error {
		_, err := file.Write(batch)
		return errors.Join(err, file.Sync())
	}))
}

// serveInserted is serveFlushed with a row of PostgreSQL for each write, given the address of the database.
func serveInserted(args []string) error {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	return serveCanned(newCommits(func(batch []byte) error {
		_, err := db.Exec(ctx, "INSERT INTO bodies (body) VALUES ($1)", batch)
		return err
	}))
}

// commits writes records. What comes during a write is written with the next one, together.
type commits struct {
	write func(batch []byte) error

	mu      sync.Mutex
	ended   *sync.Cond
	waiting []byte // for the next write
	next    int    // its number
	last    int    // the number of the last write that has ended
	busy    bool
	err     error
}

func newCommits(write func(batch []byte) error) *commits {
	c := &commits{write: write, next: 1}
	c.ended = sync.NewCond(&c.mu)
	return c
}

// keep returns when a body is written. Without commits it is only read.
func (c *commits) keep(body io.Reader) error {
	if c == nil {
		_, _ = io.Copy(io.Discard, body) // who is measured notices a broken connection
		return nil
	}
	record, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return c.add(record)
}

// add returns when record is written.
func (c *commits) add(record []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, record...)
	for own := c.next; c.last < own && c.err == nil; {
		if c.busy {
			c.ended.Wait()
			continue
		}
		batch := c.waiting
		c.waiting, c.busy = nil, true
		c.next++
		c.mu.Unlock()
		err := c.write(batch)
		c.mu.Lock()
		c.busy, c.last, c.err = false, c.last+1, errors.Join(c.err, err)
		c.ended.Broadcast()
	}
	return c.err
}

// serveCanned answers every request with a fixed reply of the size and form of a
// store's: the least work of a net/http server. The replies are those of one rollout, so
// the load verifies them as it verifies a store's, and does the same work for both.
// With commits, what changes something is written first; sequence ids are given out from memory.
func serveCanned(durable *commits) error {
	rollout := `{"rollout_id":"ro-000000000000","input":{"question":"12 times 7","index":0},"start_time":1795172350.7193449,"end_time":null,"mode":"train","resources_id":"rs-000000000000","status":"preparing","config":{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_condition":[]},"metadata":{}`
	attempt := `{"rollout_id":"ro-000000000000","attempt_id":"at-00000000","sequence_id":1,"start_time":1795172350.7249382,"end_time":null,"status":"preparing","worker_id":"runner-0","last_heartbeat_time":null,"metadata":null}`
	resources := `{"resources_id":"rs-000000000000","create_time":1.5,"update_time":1.5,"version":1,"resources":` + benchResources + `}`
	spans := make([]string, spansPerRollout)
	for i := range spans {
		spans[i] = string(spanJSON("ro-000000000000", "at-00000000", int64(i+1), i))
	}
	finished := strings.Replace(rollout, `"status":"preparing"`, `"status":"succeeded"`, 1)
	page := `{"items":[` + strings.Join(spans, ",") + `],"limit":-1,"offset":0,"total":8}`
	mux := http.NewServeMux()
	handle := func(pattern string, status int, body string, c *commits) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := c.keep(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	reply := func(pattern, body string) { handle(pattern, http.StatusOK, body, nil) }
	change := func(pattern string, status int, body string) { handle(pattern, status, body, durable) }
	reply("GET /v1/agl/health", `{"status":"ok"}`)
	change("POST /v1/agl/resources", http.StatusCreated, resources)
	reply("GET /v1/agl/resources/{id}", resources)
	change("POST /v1/agl/queues/rollouts/enqueue", http.StatusCreated, "["+rollout+"}]")
	change("POST /v1/agl/queues/rollouts/dequeue", http.StatusOK, "["+rollout+`,"attempt":`+attempt+"}]")
	reply("POST /v1/agl/spans/next", `{"sequence_id":1}`)
	change("POST /v1/agl/spans", http.StatusCreated, spans[0])
	change("POST /v1/agl/rollouts/{id}/attempts/{attempt}", http.StatusOK, attempt)
	reply("POST /v1/agl/waits/rollouts", "["+finished+"}]")
	reply("GET /v1/agl/spans", page)
	return bench.Serve(mux)
}
