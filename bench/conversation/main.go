// Command conversation measures the cost of a conversation of many turns, as ratios. In each
// turn an agent sends the whole history and 300 new words through the proxy, and the model
// replies with 100 tokens and their log-probabilities.
//
//	go run ./bench/conversation --turns 32,128,512
//
// The store is a server over HTTP on an empty database.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

type options struct {
	Turns     []int    `help:"Turns of each conversation." default:"32,128,512"`
	Databases []string `help:"Databases to measure." default:"memory,sqlite,postgres" enum:"memory,sqlite,postgres"`
	CPU       int      `help:"Calls whose CPU time is averaged, 0 for none." default:"200"`
}

func main() {
	bench.Play("conversation", map[string]func(args []string) error{"proxy": serveProxy, "reverse": serveReverse})
	bench.Main("conversation", "Measures what a conversation of many turns costs.", run)
}

func run(ctx context.Context, opt options) error {
	fmt.Println("| database | turns | conversation | bytes to the store | bytes to the algorithm | stored | CPU of the adapter |")
	fmt.Println("|---|---|---|---|---|---|---|")
	var before *measured
	for _, database := range opt.Databases {
		before = nil
		for _, turns := range opt.Turns {
			m, err := measure(ctx, database, turns)
			if err != nil {
				return fmt.Errorf("%s, %d turns: %w", database, turns, err)
			}
			growth := ""
			if before != nil {
				growth = fmt.Sprintf(" (×%.2f)", m.ratio(m.stored)/before.ratio(before.stored))
			}
			adapting := m.adapting.Round(time.Millisecond).String()
			if before != nil {
				adapting += fmt.Sprintf(" (×%.1f)", m.adapting.Seconds()/before.adapting.Seconds())
			}
			fmt.Printf("| %s | %d | %d KB | %.1f× | %.1f× | %.1f×%s | %s |\n",
				database, turns, m.conversation/1000, m.ratio(m.sent), m.ratio(m.read), m.ratio(m.stored), growth, adapting)
			before = m
		}
	}
	if opt.CPU == 0 {
		return nil
	}
	const early, late = 8, 128
	first, err := callCPU(ctx, early, everyTurn, opt.CPU)
	if err != nil {
		return err
	}
	fmt.Printf("\nCPU of the proxy for a call, beyond a bare ReverseProxy's: turn %d %v\n", early, first)
	for _, reply := range []struct {
		name string
		turn int
	}{{fmt.Sprintf("the reply of turn %d", early), early - 1}, {"its own reply, with the ids of its prompt", everyTurn}} {
		spent, err := callCPU(ctx, late, reply.turn, opt.CPU)
		if err != nil {
			return err
		}
		fmt.Printf("turn %d with %s: %v, ×%.1f\n", late, reply.name, spent, spent.Seconds()/first.Seconds())
	}
	return nil
}

// measured is the cost of one conversation.
type measured struct {
	conversation int64         // bytes of the last request and its reply's text
	sent         int64         // bytes of the proxy's requests to the store
	read         int64         // bytes of the store's answer to an algorithm
	stored       int64         // bytes of the database beyond an empty one
	adapting     time.Duration // CPU
}

func (m *measured) ratio(bytes int64) float64 { return float64(bytes) / float64(m.conversation) }

// database is an empty database whose size can be measured.
type database struct {
	dsn   string
	size  func(ctx context.Context) (int64, error) // while nothing has it open
	close func(ctx context.Context) error
}

func openDatabase(ctx context.Context, kind string) (*database, error) {
	switch kind {
	case "memory":
		return &database{
			dsn: "memory:",
			size: func(context.Context) (int64, error) {
				runtime.GC()
				runtime.GC() // the contents of a sync.Pool survive one collection
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc), nil
			},
			close: func(context.Context) error { return nil },
		}, nil
	case "sqlite":
		dir, err := os.MkdirTemp("", "agl-conversation-")
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, "agl.db")
		return &database{
			dsn: "sqlite:" + path,
			size: func(context.Context) (total int64, err error) {
				for _, suffix := range []string{"", "-wal"} {
					info, err := os.Stat(path + suffix)
					if err == nil {
						total += info.Size()
					} else if !os.IsNotExist(err) {
						return 0, err
					}
				}
				return total, nil
			},
			close: func(context.Context) error { return os.RemoveAll(dir) },
		}, nil
	default:
		pg, err := postgrestest.Start(ctx, postgrestest.Stores())
		if err != nil {
			return nil, err
		}
		dsn, err := pg.NewDatabase(ctx)
		if err != nil {
			return nil, errors.Join(err, pg.Close(ctx))
		}
		return &database{dsn: dsn, size: func(ctx context.Context) (size int64, err error) {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return 0, err
			}
			defer func() { _ = conn.Close(ctx) }()
			err = conn.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&size)
			return size, err
		}, close: pg.Close}, nil
	}
}

// measure holds one conversation.
func measure(ctx context.Context, kind string, turns int) (_ *measured, err error) {
	d, err := openDatabase(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close(context.WithoutCancel(ctx))) }()
	empty, err := store.Open(ctx, d.dsn, store.Options{}) // the schema is not part of the conversation
	if err != nil {
		return nil, err
	}
	if err := empty.Close(ctx); err != nil {
		return nil, err
	}
	size, err := d.size(ctx)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, d.dsn, store.Options{})
	if err != nil {
		return nil, err
	}
	m, err := converse(ctx, s, turns)
	if err == nil && kind == "memory" {
		m.stored, err = d.size(ctx)
	}
	if err := errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	if kind != "memory" {
		if m.stored, err = d.size(ctx); err != nil {
			return nil, err
		}
	}
	m.stored -= size
	return m, nil
}

// counter counts the bytes of requests and answers.
type counter struct {
	next           http.RoundTripper
	sent, received atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = counted{r.Body, &c.sent}
	}
	res, err := c.next.RoundTrip(r)
	if err == nil {
		res.Body = counted{res.Body, &c.received}
	}
	return res, err
}

// counted counts the bytes of a body that are read.
type counted struct {
	io.ReadCloser

	sum *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.sum.Add(int64(n))
	return n, err
}

func converse(ctx context.Context, s *store.Store, turns int) (*measured, error) {
	api, err := server.New(server.Config{Store: s})
	if err != nil {
		return nil, err
	}
	storeServer := httptest.NewServer(api)
	defer storeServer.Close()
	count := &counter{next: http.DefaultTransport}
	remote, err := client.New(client.Config{URL: storeServer.URL, Transport: count})
	if err != nil {
		return nil, err
	}
	defer func() { _ = remote.Close() }()
	r, err := s.StartRollout(ctx, agl.StartRolloutParams{})
	if err != nil {
		return nil, err
	}
	engine := newEngine(everyTurn)
	defer engine.Close()
	p, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: engine.URL + "/v1"}}, Spans: remote})
	if err != nil {
		return nil, err
	}
	p.Start(ctx)
	defer func() { _ = p.Close(context.WithoutCancel(ctx)) }()
	gateway := httptest.NewServer(p)
	defer gateway.Close()
	call := gateway.URL + "/rollout/" + r.RolloutID + "/attempt/" + r.Attempt.AttemptID + "/v1/chat/completions"
	talk := &talk{}
	for range turns {
		talk.user()
		if _, err := bench.Ask(ctx, http.DefaultTransport, http.MethodPost, call, talk.request()); err != nil {
			return nil, err
		}
		talk.assistant()
		if err := p.Flush(ctx, []string{r.RolloutID}); err != nil {
			return nil, err
		}
	}
	m := &measured{conversation: int64(len(talk.request())), sent: count.sent.Load(), read: -count.received.Load()}
	if err := adapt(ctx, remote, r.RolloutID, turns); err != nil {
		return nil, err
	}
	m.read += count.received.Load()
	adapting := make([]time.Duration, rounds)
	for i := range adapting {
		runtime.GC() // earlier garbage is not part of the measurement
		spent, err := bench.Measure(func() error { return adapt(ctx, s, r.RolloutID, turns) })
		if err != nil {
			return nil, err
		}
		adapting[i] = spent.CPU
	}
	m.adapting = bench.Median(adapting)
	return m, nil
}

// adapt makes the trajectory of a rollout, as an algorithm does.
func adapt(ctx context.Context, s agl.Store, rolloutID string, turns int) error {
	trajectories := adapter.Trajectories{}
	spans, err := agl.QuerySpansFor(ctx, s, agl.QuerySpansParams{RolloutID: rolloutID}, trajectories)
	if err != nil {
		return err
	}
	merged, err := agl.AdaptSpans(trajectories, spans)
	if err == nil && (len(merged.Trajectories) != 1 || len(spans.Spans) != 3*turns) {
		err = fmt.Errorf("%d spans give %d trajectories, want %d and one", len(spans.Spans), len(merged.Trajectories), 3*turns)
	}
	return err
}
