//go:build page

package page

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/runnertest"
	"github.com/agl-go/agl/test/process"
)

var aglBinary string

func TestMain(m *testing.M) { os.Exit(process.Main(m, &aglBinary)) }

const token = "page-" + process.Canary

// TestPage trains the calculator shortly, adds rollouts that are hard to show, and lets
// the tests in JavaScript look at the store's page.
func TestPage(t *testing.T) {
	modules, browser := os.Getenv("AGL_PAGE_NODE"), os.Getenv("AGL_PAGE_BROWSER")
	if modules == "" || browser == "" {
		t.Fatal("AGL_PAGE_NODE and AGL_PAGE_BROWSER are not set: run make page")
	}
	dir := process.Dir(t)
	database := "sqlite:" + filepath.Join(dir, "agl.db")
	command(t, ".", "go", "build", "-o", filepath.Join(dir, "calculator"), "../../examples/calculator")
	command(t, dir, filepath.Join(dir, "calculator"), "--warm-start", "300", "--steps", "2", "--db", database)

	t.Setenv("AGL_TOKEN", token)
	server := process.Store(t, aglBinary, "store", dir, "--db", database)
	store, err := client.New(client.Config{URL: server.URL(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{"release": canary(t, store)}
	runs, err := store.QueryRuns(t.Context(), agl.QueryRunsParams{})
	if err != nil || len(runs.Items) != 1 || !runs.Items[0].Step.Valid {
		t.Fatalf("the store has the runs %+v (%v), want the one that was trained, with metrics", runs.Items, err)
	}
	other, err := store.StartRun(t.Context(), agl.StartRunParams{Name: "other", Algorithm: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	made["run"], made["other"] = runs.Items[0].RunID, other.RunID
	made["grouped"], made["judged"] = group(t, store), judged(t, store)
	t.Run("search", func(t *testing.T) { made["apo"] = search(t, store) }) // its runner ends with it
	made["hostileApo"], made["python"] = hostileSearch(t, store), pythonRun(t, store, server.URL())
	// Last, since readers find them on the first page of the list.
	made["long"] = add(t, store, `"a long rollout"`, longSpans(10_000))
	made["typed"] = add(t, store, `"numbers for texts"`, typedSpans())
	made["hostile"] = add(t, store, hostileText(`<img src=x onerror="window.hacked=1">`), hostileSpans())
	made["chat"], made["failed"] = add(t, store, `{"question":"what is on the picture?","ids":[12345678901234567890,-9007199254740993],"seed":9007199254740993}`, chatSpans()), fail(t, store)
	made["lost"], made["skewed"] = lost(t, store), add(t, store, `"two clocks"`, skewedSpans())
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	ids, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	prefix := behindPrefix(t, server.URL())
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "--test-timeout=1080000", "--test-concurrency=1", "page.test.mjs", "runs.test.mjs")
	cmd.Env = append(os.Environ(), "AGL_PAGE_URL="+server.URL(), "AGL_PAGE_PREFIX="+prefix, "AGL_PAGE_PROJECTS="+projects(t, dir), "AGL_PAGE_TOKEN="+token, "AGL_PAGE_IDS="+string(ids))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	process.Silent(t, "the browser's console", out)
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	process.Silent(t, name, out)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// behindPrefix serves the store below a path, as a proxy in front of several does.
func behindPrefix(t *testing.T, store string) string {
	t.Helper()
	to, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "/team/agl"
	server := httptest.NewServer(http.StripPrefix(prefix, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1,
	}))
	t.Cleanup(server.Close)
	return server.URL + prefix
}

// projects starts a server with the project search.
func projects(t *testing.T, dir string) (url string) {
	t.Helper()
	server := process.Store(t, aglBinary, "projects", dir, "--projects", filepath.Join(dir, "projects"))
	command(t, dir, aglBinary, "project", "create", "search", "--store", server.URL())
	return server.URL()
}

// add runs a rollout that emits the spans.
func add(t *testing.T, store agl.Store, input string, spans []agl.Span) (id string) {
	t.Helper()
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(input)}})
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(spans); from += 500 {
		batch := spans[from:min(from+500, len(spans))]
		for i := range batch {
			s := &batch[i]
			s.RolloutID, s.AttemptID, s.SequenceID = r.RolloutID, r.Attempt.AttemptID, int64(from+i+1)
			s.TraceID, s.SpanID = strings.Repeat("ab", 16), fmt.Sprintf("%016x", from+i+1)
		}
		if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: batch}); err != nil {
			t.Fatal(err)
		}
	}
	end(t, store, r, agl.AttemptSucceeded, nil)
	return r.RolloutID
}

func end(t *testing.T, store agl.Store, r agl.AttemptedRollout, status agl.AttemptStatus, metadata jsontext.Value) {
	t.Helper()
	_, err := store.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status, Metadata: metadata})
	if err != nil {
		t.Fatal(err)
	}
}

// fail makes a rollout whose agent ended with an error.
func fail(t *testing.T, store agl.Store) (id string) {
	t.Helper()
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`"what fails"`)}})
	if err != nil {
		t.Fatal(err)
	}
	end(t, store, r, agl.AttemptFailed, jsontext.Value(`{"agentlightning.outcome":{"kind":"agent_error","message":"ValueError: boom"}}`))
	return r.RolloutID
}

// lost makes a rollout whose runner went away.
func lost(t *testing.T, store agl.Store) (id string) {
	t.Helper()
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`"what is lost"`)}})
	if err != nil {
		t.Fatal(err)
	}
	end(t, store, r, agl.AttemptUnresponsive, nil)
	return r.RolloutID
}

func span(name string, start float64, attributes string) agl.Span {
	var attrs agl.Attributes
	if err := json.Unmarshal([]byte(attributes), &attrs); err != nil {
		panic(err) // a mistake in this file
	}
	return agl.Span{
		Name: name, Attributes: attrs, Status: agl.SpanStatus{Code: agl.StatusOK},
		StartTime: agl.Some(agl.Timestamp(start)), EndTime: agl.Some(agl.Timestamp(start + 0.4)),
	}
}

var began = float64(time.Now().Unix())

// group makes a run with the groups of two steps: of the first one's three rollouts that count have different rewards, and one
// ended by a timeout; the rewards of the second are equal; the group of step 2 has advantages in its metadata.
func group(t *testing.T, store agl.Store) (run string) {
	t.Helper()
	run = grouped(t, store, "grouped")
	sibling(t, store, run, `"step":1,"sample":0`, "It is 4.", 1, agl.AttemptSucceeded)
	sibling(t, store, run, `"step":1,"sample":1`, "<b>It is 5</b>\u202e <img src=x onerror=window.hacked=1>", 0, agl.AttemptSucceeded)
	sibling(t, store, run, `"step":1,"sample":2`, "It is about 4.", 0.5, agl.AttemptSucceeded)
	sibling(t, store, run, `"step":1,"sample":3`, "It is", 0, agl.AttemptTimeout)
	sibling(t, store, run, `"step":1,"group":1,"sample":0`, "It is 4.", 1, agl.AttemptSucceeded)
	sibling(t, store, run, `"step":1,"group":1,"sample":1`, "It is 4.", 1, agl.AttemptSucceeded)
	sibling(t, store, run, `"step":2,"sample":0,"advantage":-1.75`, "It is 4.", 1, agl.AttemptSucceeded)
	for _, dropped := range []string{`,"dropped":"stale"`, ``} { // and what took its place
		for sample := range 2 {
			sibling(t, store, run, fmt.Sprintf(`"step":3,"group":1,"sample":%d%s`, sample, dropped), "It is 4.", float64(sample), agl.AttemptSucceeded)
		}
		sibling(t, store, run, `"step":3,"group":1,"sample":2,"dropped":"oversampled"`, "It is", 0, agl.AttemptTimeout)
	}
	for sample, dropped := range []string{`"truncated"`, `"sampling"`, `null`} { // of single rollouts
		sibling(t, store, run, fmt.Sprintf(`"step":4,"sample":%d,"dropped":%s`, sample, dropped), "It is 4.", float64(sample), agl.AttemptSucceeded)
	}
	return run
}

// judged makes a run with a group of two, whose rewards are equal until a judge gives another.
func judged(t *testing.T, store agl.Store) (run string) {
	t.Helper()
	run = grouped(t, store, "judged")
	for sample := range 2 {
		sibling(t, store, run, fmt.Sprintf(`"step":1,"group":1,"sample":%d`, sample), "It is 4.", 1, agl.AttemptSucceeded)
	}
	return run
}

// grouped begins a run whose rollouts are in groups.
func grouped(t *testing.T, store agl.Store, name string) (run string) {
	t.Helper()
	made, err := store.(agl.Runs).StartRun(t.Context(), agl.StartRunParams{Name: name, Algorithm: "grpo"})
	if err != nil {
		t.Fatal(err)
	}
	return made.RunID
}

// sibling is a rollout of a group.
func sibling(t *testing.T, store agl.Store, run, metadata, reply string, reward float64, status agl.AttemptStatus) {
	t.Helper()
	var e agl.EnqueueRollout
	e.Input, e.Mode = jsontext.Value(`"What is 2 + 2?"`), agl.ModeTrain
	e.Metadata = jsontext.Value(`{"run":"` + run + `",` + metadata + `}`)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: e})
	if err != nil {
		t.Fatal(err)
	}
	spans := []agl.Span{span("litellm_request", began, `{"gen_ai.prompt.0.role":"system","gen_ai.prompt.0.content":"Be brief.","gen_ai.prompt.1.role":"user","gen_ai.prompt.1.content":"What is 2 + 2?",
		"gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":`+hostileText(reply)+`,"gen_ai.usage.prompt_tokens":10,"gen_ai.usage.completion_tokens":`+fmt.Sprint(len(strings.Fields(reply)))+`}`)}
	if status == agl.AttemptSucceeded {
		spans = append(spans, span("agentlightning.annotation", began, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":`+fmt.Sprint(reward)+`}`))
	}
	for i := range spans {
		s := &spans[i]
		s.RolloutID, s.AttemptID, s.SequenceID = r.RolloutID, r.Attempt.AttemptID, int64(i+1)
		s.TraceID, s.SpanID = strings.Repeat("cd", 16), fmt.Sprintf("%016x", i+1)
	}
	if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: spans}); err != nil {
		t.Fatal(err)
	}
	end(t, store, r, status, nil)
}

// search runs apo with models and agents in this process.
func search(t *testing.T, store agl.Store) (run string) {
	t.Helper()
	w := apotest.Slope()
	cfg := w.Config(1)
	started, err := agl.RunsOf(store).StartRun(t.Context(), agl.StartRunParams{Name: "prompts", Algorithm: "apo"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RunID, cfg.Rounds = started.RunID, 3
	if err := store.OpenQueue(t.Context()); err != nil { // the run has closed it
		t.Fatal(err)
	}
	runnertest.Serve(t, runner.Config{Store: store, Agent: agl.AgentFunc(w.Agent), Workers: 8, HeartbeatInterval: -1, GracePeriod: 5 * time.Second})
	a, err := apo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context(), w.Input(store)); err != nil {
		t.Fatal(err)
	}
	return started.RunID
}

// hostileSearch is a run whose candidates say what candidates do not: markup, a parent that is its own child, resources that are gone.
func hostileSearch(t *testing.T, store agl.Store) (run string) {
	t.Helper()
	started, err := agl.RunsOf(store).StartRun(t.Context(), agl.StartRunParams{Name: "<b>odd</b>\u202e", Algorithm: "apo", Metadata: jsontext.Value(`{"search":{"best":"b","candidates":[
		{"resources_id":"<img src=x onerror=window.hacked=1>","round":0,"score":null,"validation":null},
		{"resources_id":"b","parent":"c","round":1,"score":0.5,"gain":{"mean":0.5,"low":0.25,"high":0.75,"level":0.95,"pairs":9},"validation":null},
		{"resources_id":"c","parent":"b","round":1,"score":0.25,"validation":null},
		{"resources_id":"d","parent":"<img src=x onerror=window.hacked=1>","round":1,"critique":"<script>window.hacked=1</script>","score":0.125,"validation":null}]}}`)})
	if err != nil {
		t.Fatal(err)
	}
	return started.RunID
}

// longSpans are a root and what is below it, in groups of a hundred.
func longSpans(n int) []agl.Span {
	spans := make([]agl.Span, n)
	for i := range spans {
		spans[i] = span(fmt.Sprintf("step %d", i), began+float64(i)/100, `{"n":`+fmt.Sprint(i)+`}`)
		switch {
		case i == 0:
		case i%100 == 0:
			spans[i].ParentID = agl.Some("0000000000000001")
		default:
			spans[i].ParentID = agl.Some(fmt.Sprintf("%016x", i/100*100+1))
		}
	}
	return spans
}

// skewedSpans have the times of two clocks, or not all of them, and parents that are their own.
func skewedSpans() []agl.Span {
	spans := []agl.Span{span("root", began, `{}`), span("ends before it starts", began, `{}`), span("of 1970", 0, `{}`), span("its own parent", began, `{}`),
		span("without a start", began, `{}`), span("litellm_request", began, `{"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"still open"}`)}
	spans[4].StartTime, spans[5].EndTime = agl.Null[agl.Timestamp]{}, agl.Null[agl.Timestamp]{}
	spans[1].EndTime = agl.Some(agl.Timestamp(began - 3))
	for i, parent := range []string{"", "0000000000000001", "0000000000000001", "0000000000000004"} {
		spans[i].ParentID = agl.Null[string]{V: parent, Valid: parent != ""}
	}
	return spans
}

func hostileText(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a mistake in this file
	}
	return string(quoted)
}

// hostileSpans hold markup, scripts, control and direction characters, a line of
// 2 MB, and a hundred thousand tokens.
func hostileSpans() []agl.Span {
	evil := "<script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\"><a href=\"javascript:window.hacked=1\">x</a> \u202eevil\u202c \x1b[31mred "
	var tokens bytes.Buffer
	for i := range 100_000 {
		if i > 0 {
			tokens.WriteByte(',')
		}
		fmt.Fprintf(&tokens, `{"token":"<b>%d","logprob":-%d.5}`, i, i%9)
	}
	call := fmt.Sprintf(`{"gen_ai.request.model":%s,"gen_ai.prompt.0.role":%s,"gen_ai.prompt.0.content":%s,"gen_ai.prompt.__proto__.role":"x","gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":%s,"logprobs.content":%s}`,
		hostileText(evil), hostileText(evil), hostileText(evil), hostileText(strings.Repeat("long ", 400_000)), hostileText("["+tokens.String()+"]"))
	return []agl.Span{
		span(evil, began, `{}`), span("litellm_request", began, call),
		span("agentlightning.message", began, `{"agentlightning.message.body":`+hostileText(evil)+`}`),
		span("agentlightning.exception", began, `{"exception.type":`+hostileText(evil)+`,"exception.message":`+hostileText(evil)+`,"exception.stacktrace":`+hostileText(evil)+`}`),
		span("agentlightning.annotation", began, `{"agentlightning.reward.0.name":`+hostileText(evil)+`,"agentlightning.reward.0.value":1}`),
	}
}

// typedSpans have numbers, booleans and lists in place of texts, texts in place of numbers, parts of messages that are none, and names as long
// as texts.
func typedSpans() []agl.Span {
	const call = `{"gen_ai.request.model":@,"agentlightning.model.version":@,"gen_ai.prompt.0.role":@,"gen_ai.prompt.0.content":@,"gen_ai.prompt.0.tool_call_id":@,"gen_ai.completion.0.role":@,"gen_ai.completion.0.content":"[{\"text\":1},null,2]","gen_ai.completion.0.reasoning_content":@,"gen_ai.completion.0.finish_reason":@,"gen_ai.completion.0.tool_calls.0.name":@,"gen_ai.completion.0.tool_calls.0.arguments":@,"gen_ai.request.functions.0.name":@,"gen_ai.usage.prompt_tokens":@,"agentlightning.proxy.total_seconds":@,"logprobs.content":@}`
	const other = `{"exception.type":@,"exception.message":@,"exception.stacktrace":@,"agentlightning.message.body":@,"agentlightning.reward.0.name":@,"agentlightning.reward.0.value":1,"agentlightning.reward_source":@,"agentlightning.reward_message":@,"agentlightning.training.calls":@}`
	var spans []agl.Span
	for _, value := range []string{`5`, `true`, `[1,2]`, `"` + strings.Repeat("long", 5000) + `"`} {
		spans = append(spans, span("litellm_request", began, strings.ReplaceAll(call, "@", value)))
		for _, name := range []string{"agentlightning.exception", "agentlightning.message", "agentlightning.annotation", agl.SpanTraining} {
			spans = append(spans, span(name, began, strings.ReplaceAll(other, "@", value)))
		}
	}
	return spans
}

// picture is a PNG of one pixel.
const picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// chatSpans are a conversation with a picture, a tool, reasoning and two rewards.
func chatSpans() []agl.Span {
	first := `"gen_ai.request.model":"seer","gen_ai.prompt.0.role":"system","gen_ai.prompt.0.content":"Be brief.","gen_ai.prompt.1.role":"user","gen_ai.prompt.1.content":` +
		hostileText(`[{"type":"text","text":"What is on it?"},{"type":"image_url","image_url":{"url":"`+picture+`"}},{"type":"image_url","image_url":{"url":"https://elsewhere.example/track.png"}}]`)
	called := `.role":"assistant","%s.content":"","%s.tool_calls.0.id":"call-1","%s.tool_calls.0.name":"look","%s.tool_calls.0.arguments":"{\"at\":\"picture\"}"`
	at := func(prefix string) string {
		return `"` + prefix + strings.ReplaceAll(called, "%s", prefix)
	}
	return []agl.Span{
		span("litellm_request", began, `{`+first+`,`+at("gen_ai.completion.0")+`,"gen_ai.completion.0.reasoning_content":"I should look.","gen_ai.completion.0.finish_reason":"tool_calls"}`),
		span("agentlightning.annotation", began+1, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.25}`),
		span("litellm_request", began+2, `{`+first+`,`+at("gen_ai.prompt.2")+`,"gen_ai.prompt.3.role":"tool","gen_ai.prompt.3.tool_call_id":"call-1","gen_ai.prompt.3.content":"a cat","gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"A cat.","gen_ai.completion.0.finish_reason":"stop","logprobs.content":"[{\"token\":\"A\",\"logprob\":-0.01},{\"token\":\" cat\",\"logprob\":-3},{\"token\":\".\",\"logprob\":-0.2}]"}`),
		span("agentlightning.annotation", began+3, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.75}`),
		// What a step has computed of the second call, later: the logarithms of its ratios are 0, 1 and -2, its advantages 0.5, -2 and 0.
		span(agl.SpanTraining, began+1000, `{"agentlightning.training.run":"<b>odd</b>","agentlightning.training.step":7,"agentlightning.training.calls":`+hostileText(
			`[{"span_id":"0000000000000003","advantages":{"scale":0.5,"data":"AQD8/wAA"},"log_ratios":{"scale":0.001,"data":"AADoAzD4"},"left_out":"Ag=="},{"span_id":"0000000000000001","advantage":-1.5}]`)+`}`),
	}
}
