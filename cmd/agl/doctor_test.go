package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/doctor"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
)

// examine runs the doctor and returns its findings as "state check: found → remedy".
func examine(t *testing.T, args ...string) (findings []string, err error) {
	t.Helper()
	var out bytes.Buffer
	m := &Main{Stdout: &out, Stderr: io.Discard}
	if err := m.ParseFlags(append([]string{"doctor", "--json"}, args...)); err != nil {
		t.Fatal(err)
	}
	err = m.Run(t.Context())
	m.Close()
	var doc struct {
		Checks []doctor.Finding `json:"checks"`
		Failed int              `json:"failed"`
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	failed := 0
	for _, f := range doc.Checks {
		if f.State == doctor.Fail {
			failed++
		}
		line := fmt.Sprintf("%s %s: %s", f.State, f.Check, f.Found)
		if f.Remedy != "" {
			line += " → " + f.Remedy
		}
		findings = append(findings, line)
	}
	if failed != doc.Failed || (failed > 0) != (err != nil) {
		t.Errorf("%d checks failed, the document says %d, the command %v", failed, doc.Failed, err)
	}
	return findings, err
}

// like compares findings with what is wanted, in which … stands for anything.
func like(t *testing.T, want, got []string) {
	t.Helper()
	same := len(want) == len(got)
	for i := 0; same && i < len(want); i++ {
		begin, end, dots := strings.Cut(want[i], "…")
		same = got[i] == want[i] || dots && strings.HasPrefix(got[i], begin) && strings.HasSuffix(got[i], end)
	}
	if !same {
		t.Error(cmp.Diff(want, got))
	}
}

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A backend is asked as the proxy asks, which shows what it can be used for.
func TestDoctorModels(t *testing.T) {
	t.Parallel()
	model := proxytest.Text(func(string, int) string { return "ok" })
	start := func(script proxytest.Script) string {
		server := proxytest.NewServer(script)
		t.Cleanup(server.Close)
		return server.BaseURL()
	}
	engine, hosted := start(model.VLLM()), start(model.OpenAI())
	mute := start(func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		r.Body = bytes.Replace(r.Body, []byte(`"return_token_ids":true`), []byte(`"ignored":1`), 1)
		return model.VLLM()(ctx, r)
	})
	locked := start(func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Status: 401, Body: `{"error":{"message":"who are you?"}}`}
	})
	renamed := start(func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		if bytes.Contains(r.Body, []byte(`"max_tokens"`)) {
			return proxytest.Reply{Status: 400, Body: `{"error":{"message":"Unsupported parameter: use 'max_completion_tokens' instead."}}`}
		}
		return model.VLLM()(ctx, r)
	})
	untrusted := httptest.NewTLSServer(nil)
	t.Cleanup(untrusted.Close)
	dir := t.TempDir()
	file := put(t, dir, "agl.yaml", fmt.Sprintf(`
data: {train: tasks.jsonl}
algorithm: {baseline: }
store: {listen: 127.0.0.1:0, db: 'memory:'}
proxy:
  models:
    - {name: engine, base_url: %q}
    - {name: mute, base_url: %q}
    - {name: hosted, base_url: %q}
    - {name: declared, base_url: %q, text_only: true}
    - {name: locked, base_url: %q}
    - {name: renamed, base_url: %q}
    - {name: secret, base_url: %q, api_key: env:AGL_NO_SUCH_KEY}
    - {name: untrusted, base_url: %q}
`, engine, mute, hosted, hosted, locked, renamed, engine, untrusted.URL))
	put(t, dir, "tasks.jsonl", "1\n2\n")
	got, _ := examine(t, file)
	like(t, []string{
		"ok run file: …/runs/agl",
		"ok agent: none in this process: runners elsewhere run the tasks",
		"ok data.train: 2 tasks",
		"ok model engine: answers in …, with token ids and log-probabilities",
		"warn model mute: answers in …, with log-probabilities but without token ids: fine for apo and baseline, not for grpo → for grpo use an engine that returns both, such as vLLM 0.10.2 or later",
		"FAIL model hosted: " + hosted + ": answers 400: … → set text_only: true; that is fine for apo and baseline, not for grpo",
		"ok model declared: answers in …; text only: fine for apo and baseline, not for grpo",
		"FAIL model locked: " + locked + ": answers 401: who are you? → set its key: api_key: env:NAME",
		"ok model renamed: answers in …, with token ids and log-probabilities",
		"FAIL secret: proxy.models[6].api_key is taken from the environment variable AGL_NO_SUCH_KEY, which is not set → set AGL_NO_SUCH_KEY",
		"FAIL model untrusted: " + untrusted.URL + ": answers 502: … → give the CA of its certificate with --ca (or AGL_CA), and use a name that the certificate has",
		"warn database: in memory: everything is lost when the run ends → name a file in store.db to keep the run",
		"ok store.listen: 127.0.0.1:0 is free",
		"ok output: …/runs/agl can be created",
	}, got)
}

// Tasks, conversations, the database and the ports are looked at before a run
// stumbles over them.
func TestDoctorRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := put(t, dir, "agl.yaml", fmt.Sprintf(`
agent: {command: [sh]}
data: {train: {file: tasks.csv, limit: 1}, val: broken.jsonl}
engine: {policy: {context: 32, warm_start: {file: demos.jsonl}}}
algorithm: {grpo: {steps: 1}}
store: {listen: %q}
`, taken.Addr()))
	put(t, dir, "tasks.csv", "q,a\n1,2\n3,4\n")
	put(t, dir, "broken.jsonl", "{}\n{\n")
	put(t, dir, "demos.jsonl", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"HO"}]}`)
	database := filepath.Join(dir, "runs", "agl", "agl.db")
	want := []string{
		"ok run file: …/runs/agl",
		"ok agent: sh is …/sh",
		"ok data.train: 2 tasks, of which 1 are used",
		"FAIL data.val: " + filepath.Join(dir, "broken.jsonl") + ":2: … → fix the file; this is its first mistake",
		"ok engine: the embedded policy: a vocabulary of 48 tokens (its 44 characters, and marks), a context of 32 tokens; gives token ids and log-probabilities",
		"FAIL warm start: " + filepath.Join(dir, "demos.jsonl") + ": conversation 1: … → fix the file, or change engine.policy",
		"ok database: sqlite:" + database + " can be created",
		"FAIL store.listen: " + taken.Addr().String() + " is in use → stop the program that uses it, or choose another",
		"ok output: " + filepath.Dir(database) + " can be created",
	}
	got, _ := examine(t, file)
	like(t, want, got)
	if _, err := os.Stat(filepath.Dir(database)); err == nil {
		t.Error("the doctor made the output folder")
	}

	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		t.Fatal(err)
	}
	driver, err := store.OpenDriver(t.Context(), "sqlite:"+database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want[6] = "FAIL database: sqlite:" + database + " is in use → stop the program that uses it, or give the URL of its store in store.url"
	want[8] = "ok output: " + filepath.Dir(database) + " exists"
	got, _ = examine(t, file)
	like(t, want, got)
	if err := driver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want[6] = "ok database: sqlite:" + database + " opens; it holds 0 rollouts"
	got, _ = examine(t, file)
	like(t, want, got)
}

// A store is asked with its token.
func TestDoctorStore(t *testing.T) {
	t.Parallel()
	url, stop, err := startServer("store", "--port=0", "--db=memory:", "--token=right")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	dir := t.TempDir()
	file := put(t, dir, "agl.yaml", "data: {train: tasks.jsonl}\nalgorithm: {baseline: }\nstore: {url: '"+url+"'}\n")
	put(t, dir, "tasks.jsonl", "")
	got, _ := examine(t, file, "--token=right")
	like(t, []string{
		"ok run file: …", "ok agent: …", "FAIL data.train: " + filepath.Join(dir, "tasks.jsonl") + " is empty → add a task",
		"ok store: " + url + " answers and accepts the token; it holds 0 rollouts", "ok output: …",
	}, got)
	got, _ = examine(t, "--store="+url, "--token=wrong")
	like(t, []string{"FAIL store: " + url + " answers, but does not accept the token: … → set AGL_TOKEN to the token that the store was started with"}, got)
	got, _ = examine(t, "--store="+url, "--token-file="+put(t, dir, "token", "right\n"))
	like(t, []string{"ok store: " + url + " answers and accepts the token; it holds 0 rollouts"}, got)
	got, _ = examine(t, "--store=http://127.0.0.1:1")
	like(t, []string{"FAIL store: http://127.0.0.1:1: … → start one there with agl store, or name another"}, got)
	encrypts := httptest.NewTLSServer(nil)
	defer encrypts.Close()
	for url, remedy := range map[string]string{
		"https" + strings.TrimPrefix(url, "http"):          "write http:// in its URL, or start it with a certificate",
		"http" + strings.TrimPrefix(encrypts.URL, "https"): "write https:// in its URL",
		encrypts.URL: "give the CA of its certificate with --ca (or AGL_CA), and use a name that the certificate has",
	} {
		got, _ = examine(t, "--store="+url)
		like(t, []string{"FAIL store: " + url + ": … → " + remedy}, got)
	}
}

// The server of Agent-lightning in Python takes no spans of this program, so doctor and what records refuse it at once.
func TestStoreThatTakesNoSpans(t *testing.T) {
	t.Parallel()
	python := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v1/agl/health", "/v1/agl/statistics":
			fmt.Fprint(w, `{"status": "ok"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"detail": "Not Found"}`)
		}
	}))
	defer python.Close()
	got, _ := examine(t, "--store="+python.URL)
	like(t, []string{"FAIL store: " + python.URL + ": … Agent-lightning's own, or not a store → start one there with agl store, or name another"}, got)
	for _, args := range [][]string{
		{"runner", "--store=" + python.URL, "--", "true"},
		{"proxy", "--store=" + python.URL, "--port=0", "--model=m=http://127.0.0.1:1/v1"},
	} {
		if _, stop, err := startServer(args...); err == nil {
			stop()
			t.Errorf("%s starts", args[0])
		} else if !strings.Contains(err.Error(), "Ready: the store's server answered 404") {
			t.Errorf("%s: got %v", args[0], err)
		}
	}
}

// A run that keeps others from the store is told of, and is not a failure.
func TestDoctorRunUnderWay(t *testing.T) {
	t.Parallel()
	url, stop, err := startServer("store", "--projects="+t.TempDir(), "--port=0", "--token=right")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	connect := func(url string) *client.Client {
		t.Helper()
		c, err := client.New(client.Config{URL: url, Token: "right"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	if _, err := connect(url).CreateProject(t.Context(), "search", access.Limits{}); err != nil {
		t.Fatal(err)
	}
	inProject := url + "/p/search"
	runs := connect(inProject)
	start := func(id, metadata string) agl.StartRunParams {
		return agl.StartRunParams{RunID: id, Name: "agl-2", Algorithm: "grpo", Metadata: []byte(metadata)}
	}
	const exclusive = `{"exclusive":true}`
	for _, p := range []agl.StartRunParams{start("ru-metrics", `{}`), start("ru-ended", exclusive), start("ru-1", exclusive)} {
		if _, err := runs.StartRun(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	finished := agl.RunFinished
	if _, err := runs.UpdateRun(t.Context(), agl.UpdateRunParams{RunID: "ru-ended", Status: &finished}); err != nil {
		t.Fatal(err)
	}
	answers := " answers and accepts the token; it holds 0 rollouts"
	got, err := examine(t, "--store="+inProject+"/", "--token=right")
	if err != nil {
		t.Error(err)
	}
	like(t, []string{
		"ok store: " + inProject + "/" + answers,
		"ok run under way: ru-1, agl-2, grpo, project search; last heard from … ago; until it ends agl train refuses another one in this store",
	}, got)
	if got, err = examine(t, "--store="+url, "--token=right"); err != nil {
		t.Error(err)
	}
	like(t, []string{"ok store: " + url + answers}, got)
}

// The table says what to do below what was found.
func TestDoctorTable(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "wrong.yaml", "agent: {command: [sh]}\ndata: {}\nalgorithm: {baseline: }\n")
	var out bytes.Buffer
	m := &Main{Stdout: &out, Stderr: io.Discard}
	if err := m.ParseFlags([]string{"doctor", file, "--store=http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	err := m.Run(t.Context())
	want := "FAIL  run file  " + file + ":2: data.train: missing, the file of the tasks to train with\n" +
		"FAIL  store     http://127.0.0.1:1: Health: the store's server does not answer: dial tcp 127.0.0.1:1: connect: connection refused\n" +
		"                → start one there with agl store, or name another\n"
	if err == nil || err.Error() != "2 checks failed" || out.String() != want {
		t.Errorf("error %v\n%s", err, cmp.Diff(want, out.String()))
	}
}
