package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/rest/client"
)

// models stores models with keys and passwords, and puts the bundle's id into
// $MODELS.
func models(ts *testscript.TestScript, _ bool, _ []string) {
	bundle, err := dial(ts).AddResources(context.Background(), agl.AddResourcesParams{Resources: agl.Resources{
		{Name: "model", Resource: agl.LLM{
			Endpoint: "http://user:hidden@model.example/v1", Model: "tiny", APIKey: agl.Some("sk-one"),
			SamplingParameters: jsontext.Value(`{"temperature":1.0,"extra_headers":{"Authorization":"Bearer sk-two"}}`),
		}},
		{Name: "proxied", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: "http://proxy.example/v1", Model: "tiny", APIKey: agl.Some("env:MODEL_KEY")}}},
		{Name: "prompt", Resource: agl.PromptTemplate{Template: "Answer {q}", Engine: agl.PromptFString}},
	}})
	ts.Check(err)
	ts.Setenv("MODELS", bundle.ResourcesID)
}

// keyed starts a rollout with keys and a password in its input, its metadata and a
// span, and puts its id into $KEYED.
func keyed(ts *testscript.TestScript, _ bool, _ []string) {
	store := dial(ts)
	r, err := store.StartRollout(context.Background(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
		Input:    jsontext.Value(`{"model":{"api_key":"sk-one","base_url":"http://user:hidden@model.example/v1"}}`),
		Metadata: jsontext.Value(`{"authorization":"Bearer sk-two"}`),
	}})
	ts.Check(err)
	addSpans(ts, store, r, testSpan{id: "1", name: "call", attrs: []agl.Attr{{Key: "llm.request.headers.authorization", Value: "Bearer sk-three"}}})
	ts.Setenv("KEYED", r.RolloutID)
}

// TestWatch changes what a watching command looks at, until it has seen it.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, want string }{
		{"workers", `"worker_id":"host-`},
		{"stats", `"total_workers":1,`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			url, stop, err := startServer("store", "--port=0", "--db=memory:")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			client, err := client.New(client.Config{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			args := []string{tc.name, "--watch", "--json", "--store=" + url}
			if tc.name == "stats" {
				args = append(args, "--every=1ms")
			}
			watchUntil(t, args, tc.want, func(n int) error {
				_, err := client.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("host-1")})
				if n%2 == 1 {
					_, err = client.StartRollout(t.Context(), agl.StartRolloutParams{
						EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}, WorkerID: agl.Some("host-1"),
					})
				}
				return err
			})
		})
	}
}

// meanwhile makes a change right after the first listing of a watching command
// has been read.
type meanwhile struct {
	agl.Store

	change func() error
}

func (s *meanwhile) changed(err error) error {
	if change := s.change; change != nil && err == nil {
		s.change = nil
		return change()
	}
	return err
}

func (s *meanwhile) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	page, err := s.Store.QueryRollouts(ctx, p)
	return page, s.changed(err)
}

func (s *meanwhile) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	page, err := s.Store.QueryWorkers(ctx, p)
	return page, s.changed(err)
}

// TestWatchMissesNothing: what changes between the listing and the first event is
// seen.
func TestWatchMissesNothing(t *testing.T) {
	t.Parallel()
	inJSON := listFlags{JSON: true}
	for name, watch := range map[string]func(ctx context.Context, out *console.Console, store agl.Store) error{
		"rollouts": func(ctx context.Context, out *console.Console, store agl.Store) error {
			return (&rolloutsCommand{listFlags: inJSON}).listing(store).watch(ctx, out, store)
		},
		"workers": func(ctx context.Context, out *console.Console, store agl.Store) error {
			return (&workersCommand{listFlags: inJSON}).listing(store).watch(ctx, out, store)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, stop, err := startServer("store", "--port=0", "--db=memory:")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			client, err := client.New(client.Config{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			store := &meanwhile{Store: client, change: func() error {
				_, err := client.StartRollout(t.Context(), agl.StartRolloutParams{
					EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}, WorkerID: agl.Some("host-1"),
				})
				return err
			}}
			read, write := io.Pipe()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of one that misses it
			ended := make(chan error, 1)
			go func() {
				err := watch(ctx, &console.Console{Out: write}, store)
				ended <- errors.Join(err, write.Close())
			}()
			line, err := bufio.NewReader(read).ReadString('\n')
			if err != nil || !strings.Contains(line, `"host-1"`) {
				t.Errorf("got %q, %v; want what host-1 has begun", line, err)
			}
			cancel()
			_ = read.Close() // another line may be on its way
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// watchUntil runs a command and calls change again and again, until the command
// has printed a line with want in it.
func watchUntil(t *testing.T, args []string, want string, change func(n int) error) {
	t.Helper()
	read, write := io.Pipe()
	m := &Main{Stdout: write, Stderr: io.Discard}
	if err := m.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := m.Run(t.Context())
		ended <- errors.Join(err, write.CloseWithError(io.EOF))
	}()
	seen := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(read)
		found := false
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) && !found {
				found = true
				seen <- true
			}
		}
		if !found {
			seen <- false
		}
	}()
	for n := 0; ; n++ {
		if err := change(n); err != nil {
			t.Error(err)
		}
		select {
		case found := <-seen:
			m.Close()
			if err := <-ended; !found || !errors.Is(err, context.Canceled) {
				t.Errorf("seen %v, ended with %v", found, err)
			}
			return
		default:
		}
	}
}

// TestWatchLabel: of all changes only those of rollouts with the labels are printed.
func TestWatchLabel(t *testing.T) {
	t.Parallel()
	url, stop, err := startServer("store", "--port=0", "--db=memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	client, err := client.New(client.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	read, write := io.Pipe()
	m := &Main{Stdout: write, Stderr: io.Discard}
	if err := m.ParseFlags([]string{"rollouts", "--watch", "--json", "--label=run=mine", "--label=step=2", "--store=" + url}); err != nil {
		t.Fatal(err)
	}
	enqueue := func(input, metadata string) string {
		made, err := client.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(input), Metadata: jsontext.Value(metadata)}}})
		if err != nil {
			t.Fatal(err)
		}
		return made[0].RolloutID
	}
	const labels = `{"run":"mine","step":2}`
	enqueue(`"listed"`, labels)
	ended := make(chan error, 1)
	go func() {
		err := m.Run(t.Context())
		ended <- errors.Join(err, write.CloseWithError(io.EOF))
	}()
	lines := bufio.NewScanner(read)
	want := func(text string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), text) {
			t.Fatalf("got %q, want %s", lines.Text(), text)
		}
	}
	want(`"listed"`)
	gone := enqueue(`"of another"`, `{"run":"other","step":2}`)
	if _, err := client.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: gone}); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: gone}); err != nil {
		t.Fatal(err)
	}
	enqueue(`"of another step"`, `{"run":"mine","step":3}`)
	enqueue(`"followed"`, labels)
	want(`"followed"`)
	m.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
