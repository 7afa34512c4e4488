package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"agl": main}) }

// TestScripts runs the command against a real store server, one per script,
// whose URL is $AGL_STORE_URL.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", func(env *testscript.Env) error {
		url, stop, err := startServer("store", "--port=0", "--db=memory:")
		if err != nil {
			return err
		}
		env.Defer(stop)
		env.Setenv("AGL_STORE_URL", url)
		return nil
	})
}

// TestPostgres runs the command against a real PostgreSQL. Each script has two databases of its own,
// $DB and $OTHER, beside which are those of their projects one and two, such as $DB_one.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start(t.Context(), postgrestest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	runScripts(t, "testdata/postgres", func(env *testscript.Env) error {
		for _, name := range []string{"DB", "OTHER"} {
			url, err := server.NewDatabase(t.Context())
			if err != nil {
				return err
			}
			databases := map[string]string{name: url}
			for _, project := range []string{"one", "two"} {
				if databases[name+"_"+project], _, err = postgres.SiblingURL(url, project); err != nil {
					return err
				}
			}
			for name, url := range databases {
				env.Setenv(name, url)
				env.Defer(func() {
					if err := server.DropDatabase(context.WithoutCancel(t.Context()), url); err != nil {
						t.Error(err)
					}
				})
			}
		}
		return nil
	})
}

func runScripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	t.Helper()
	if testing.Short() {
		t.Skip("every command of a script is a process of its own, which a race detector makes slow and learns little from")
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			env.Values[servers] = new([]func())
			return setup(env)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": code, "serve": serve, "seed": seed, "chain": chain, "tasks": tasks, "models": models, "keyed": keyed, "calls": calls, "broken": broken, "rows": checkRows, "many": many, "talk": talk, "request": request, "refused": refused, "shutdown": stopServers,
		},
		RequireUniqueNames: true,
	})
}

// startServer runs a server command in this process, by the real Main.
func startServer(args ...string) (url string, stop func(), err error) {
	listening := make(chan string, 1)
	m := &Main{Stdout: io.Discard, Stderr: io.Discard, Listening: func(url string) { listening <- url }}
	if err := m.ParseFlags(args); err != nil {
		return "", nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background()) }()
	select {
	case url = <-listening:
	case err := <-ended:
		return "", nil, err
	}
	return url, func() {
		m.Close()
		if err := <-ended; err != nil {
			panic(err)
		}
	}, nil
}

// serve COMMAND ARGS… runs a server of this program and puts its URL into $URL.
func serve(ts *testscript.TestScript, _ bool, args []string) {
	url, stop, err := startServer(args...)
	ts.Check(err)
	stop = sync.OnceFunc(stop)
	ts.Defer(stop)
	all := ts.Value(servers).(*[]func())
	*all = append(*all, stop)
	ts.Setenv("URL", url)
}

// servers is the key of the functions that end what a script has started with serve.
const servers = "servers"

// stopServers is shutdown (stop would end the script): it ends the servers that serve has started.
func stopServers(ts *testscript.TestScript, _ bool, _ []string) {
	for _, stop := range *ts.Value(servers).(*[]func()) {
		stop()
	}
}

// refused URL FILE asks with the key in a file until it is refused, and prints the answer as request does.
func refused(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: refused URL FILE")
	}
	for {
		status, body := send(ts, http.MethodGet, args[0], args[1], "")
		if status >= http.StatusMultipleChoices {
			_, err := fmt.Fprintf(ts.Stdout(), "%d %s", status, body)
			ts.Check(err)
			return
		}
	}
}

// request METHOD URL FILE BODY sends a request with the key in a file, prints the answer, and
// wants it to be a success, or after ! a failure, whose status it prints, too.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: request METHOD URL FILE BODY")
	}
	status, body := send(ts, args[0], args[1], args[2], args[3])
	if failed := status >= http.StatusMultipleChoices; failed != neg {
		ts.Fatalf("%d %s", status, body)
	}
	if neg {
		body = fmt.Appendf(nil, "%d %s", status, body)
	}
	_, err := ts.Stdout().Write(body)
	ts.Check(err)
}

// send sends a request with the key in a file.
func send(ts *testscript.TestScript, method, url, keyFile, body string) (status int, answer []byte) {
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(keyFile)))
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	ts.Check(err)
	return res.StatusCode, answer
}

// code N COMMAND… runs a command and wants exit code N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func dial(ts *testscript.TestScript) *client.Client {
	client, err := client.New(client.Config{URL: ts.Getenv("AGL_STORE_URL"), Token: ts.Getenv("AGL_TOKEN")})
	ts.Check(err)
	ts.Defer(func() { ts.Check(client.Close()) })
	return client
}

// seed puts a succeeded, a failed and a queued rollout into the store, and their
// ids into $SUCCEEDED, $FAILED and $QUEUED.
func seed(ts *testscript.TestScript, _ bool, _ []string) {
	ctx := context.Background()
	store := dial(ts)
	start := func(input string) agl.AttemptedRollout {
		r, err := store.StartRollout(ctx, agl.StartRolloutParams{
			EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(input), Mode: agl.ModeTrain}, WorkerID: agl.Some("host-1-0"),
		})
		ts.Check(err)
		return r
	}
	finish := func(r agl.AttemptedRollout, status agl.AttemptStatus, outcome agl.Outcome) {
		_, err := store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status, Metadata: agl.WithOutcome(nil, outcome),
		})
		ts.Check(err)
	}
	good := start(`{"question":"3 + 4 = ?"}`)
	addSpans(ts, store, good,
		testSpan{id: "1", name: "agent"},
		testSpan{id: "2", parent: "1", name: agl.SpanChatCompletion, attrs: []agl.Attr{
			{Key: agl.AttrGenAIRequestModel, Value: "tiny"}, {Key: agl.AttrGenAIInputTokens, Value: 12}, {Key: agl.AttrGenAIOutputTokens, Value: 5},
		}},
		testSpan{id: "3", parent: "1", name: agl.SpanAnnotation, attrs: rewardAttrs(ts, agl.Reward{Name: "primary", Value: 0.5}, agl.Reward{Name: "brevity", Value: 1})},
		testSpan{id: "4", parent: "gone", name: "orphan\x1b[31m", failed: "line one\nline two"},
	)
	finish(good, agl.AttemptSucceeded, agl.Outcome{Kind: agl.OutcomeOK})
	bad := start(`"x"`)
	finish(bad, agl.AttemptFailed, agl.Outcome{Kind: agl.OutcomePanic, Message: "index out of range"})
	queued, err := store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`null`)}}})
	ts.Check(err)
	ts.Setenv("SUCCEEDED", good.RolloutID)
	ts.Setenv("FAILED", bad.RolloutID)
	ts.Setenv("QUEUED", queued[0].RolloutID)
	ts.Setenv("ATTEMPT", good.Attempt.AttemptID)
}

// chain N makes a rollout of N spans, each the child of the one before, and puts
// its id into $CHAIN.
func chain(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	store := dial(ts)
	r, err := store.StartRollout(context.Background(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
	ts.Check(err)
	spans := make([]testSpan, n)
	for i := range spans {
		spans[i] = testSpan{id: strconv.Itoa(i), parent: strconv.Itoa(i - 1), name: fmt.Sprintf("step %d", i)}
	}
	addSpans(ts, store, r, spans...)
	ts.Setenv("CHAIN", r.RolloutID)
}

type testSpan struct {
	id, parent, name string
	attrs            []agl.Attr
	failed           string
}

func rewardAttrs(ts *testscript.TestScript, rewards ...agl.Reward) []agl.Attr {
	attrs, err := agl.RewardAttributes(rewards...)
	ts.Check(err)
	return attrs
}

func addSpans(ts *testscript.TestScript, store agl.Store, r agl.AttemptedRollout, spans ...testSpan) {
	var all []agl.Span
	for i, s := range spans {
		attrs, err := agl.NewAttributes(s.attrs...)
		ts.Check(err)
		began := r.Attempt.StartTime + agl.Timestamp(i)
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, TraceID: "t", SpanID: s.id, Name: s.name, Attributes: attrs,
			StartTime: agl.Some(began), EndTime: agl.Some(began + 0.25), Status: agl.SpanStatus{Code: agl.StatusOK},
		}
		if s.parent != "" {
			span.ParentID = agl.Some(s.parent)
		}
		if s.failed != "" {
			span.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(s.failed)}
		}
		all = append(all, span)
	}
	_, err := store.AddSpans(context.Background(), agl.AddSpansParams{Spans: all, IssueSequenceIDs: true})
	ts.Check(err)
}

// tasks N adds resources and enqueues rollouts with the inputs 1 to N.
func tasks(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx := context.Background()
	store := dial(ts)
	_, err = store.AddResources(ctx, agl.AddResourcesParams{Resources: agl.Resources{
		{Name: "prompt", Resource: agl.PromptTemplate{Template: "Answer {q}", Engine: agl.PromptFString}},
	}})
	ts.Check(err)
	p := agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, n)}
	for i := range p.Rollouts {
		p.Rollouts[i].Input = jsontext.Value(strconv.Itoa(i + 1))
	}
	_, err = store.EnqueueRollouts(ctx, p)
	ts.Check(err)
}
