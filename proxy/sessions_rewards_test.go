package proxy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/extract"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// rewardsOf lists the rewards of a session: value, source, priority, and what each is for.
func (l live) rewardsOf(t *testing.T, id string) (list []string) {
	t.Helper()
	page, err := l.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id, Name: agl.SpanAnnotation})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Items {
		a := page.Items[i].Attributes
		value, _ := a.GetFloat(agl.AttrReward + ".0.value")
		source, _ := a.GetString(agl.AttrRewardSource)
		priority, _ := a.GetFloat(agl.AttrRewardPriority)
		call, _ := a.GetString(agl.AttrRewardCall)
		turn, _ := a.GetString(agl.AttrRewardTurn)
		message, _ := a.GetString(agl.AttrRewardMessage)
		list = append(list, strings.TrimSpace(fmt.Sprintf("%v %s %v %s%s %s", value, source, priority, call, turn, message)))
	}
	return list
}

func (l live) metrics(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var about []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "agl_proxy_reward") {
			about = append(about, line)
		}
	}
	return strings.Join(about, "")
}

// An event of the application is the reward that the configuration says, for the session that its name, its id or its key names.
func TestSessionEvents(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), func(c *proxy.Config) {
		c.Sessions.Events = map[string]float64{"accepted": 1, "rejected": -1}
	})
	_, old := l.call(t, completions, hello, 200, "X-Agl-Session", "chat-1", "X-Agl-User", "ada", "X-Agl-Done", "true")
	l.awaitEnd(t, old)
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "chat-1", "X-Agl-User", "ada", "X-Agl-Turn", "t-1")
	if id == old {
		t.Fatal("the name begins no new session")
	}
	for range 2 { // a repeat adds nothing
		l.call(t, "/v1/agl/event", `{"event":"accepted","turn":"t-1","message":"kept","idempotency_key":"edit-1"}`, 200, "X-Agl-Session", "chat-1", "X-Agl-User", "ada")
	}
	l.call(t, "/v1/agl/sessions/"+old+"/event", `{"event":"rejected"}`, 200)
	started, _ := l.call(t, "/v1/agl/sessions", ``, 201)
	l.call(t, "/v1/agl/event", `{"event":"accepted"}`, 200, "Authorization", fmt.Sprint("Bearer ", started["key"]))
	for rollout, want := range map[string]string{
		id: "[1 event 20 t-1 accepted: kept]", old: "[-1 event 20  rejected]", fmt.Sprint(started["session_id"]): "[1 event 20  accepted]",
	} {
		if got := fmt.Sprint(l.rewardsOf(t, rollout)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, c := range []struct {
		body, want string
		status     int
		header     []string
	}{
		{`{"event":"bought"}`, "allowed are accepted, rejected", 400, []string{"X-Agl-Session", "chat-1"}},
		{`{"event":"accepted"}`, "must name the session", 400, nil},
		{`{"event":"accepted"}`, "there is no session", 404, []string{"X-Agl-Session", "chat-2"}},
		{`{"event":"accepted"}`, "there is no session", 404, []string{"X-Agl-Session", "chat-1", "X-Agl-User", "bob"}},
		{`{"event":"accepted","value":3}`, "value", 400, []string{"X-Agl-Session", "chat-1"}},
	} {
		if answer, _ := l.call(t, "/v1/agl/event", c.body, c.status, c.header...); !strings.Contains(fmt.Sprint(answer), c.want) {
			t.Errorf("%s %v: got %v, want %q", c.body, c.header, answer, c.want)
		}
	}
	if page, err := l.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{}); err != nil || page.Total != 3 {
		t.Errorf("%d rollouts, %v, want 3: an event begins no session", page.Total, err)
	}
}

// checkScript is a program that rewards a session by its first message, and fails in the ways that programs do.
const checkScript = `input=$(cat)
case $input in
*crash*) echo no database >&2; exit 3;;
*hang*) sleep 3600;;
*garbage*) echo good;;
*member*) echo '{"value": 1, "colour": "red"}';;
*nothing*) echo null;;
*unknown*) echo '[0.5, {"value": 2, "turn": "t-9"}, {"value": 1, "turn": "t-1"}]';;
*many*) echo '[0.5, {"value": 2, "turn": "t-1", "message": "first"}, {"dimensions": {"kept": 1, "speed": 0.1}}]';;
*) echo 0.25;;
esac
`

// startRewarded starts a proxy whose sessions are rewarded by a real program, and by a model that answers its prompt.
func startRewarded(t *testing.T, store agl.Store, log io.Writer, timeout time.Duration) live {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "check.sh"), []byte(checkScript), 0o600); err != nil {
		t.Fatal(err)
	}
	judge := serve(t, proxytest.VLLM(func(question string, _ int) string {
		switch {
		case strings.Contains(question, "thanks"):
			return "1"
		case strings.Contains(question, "wrong"):
			return "-1"
		}
		return "I do not know"
	}))
	return startLive(t, store, func(c *proxy.Config) {
		c.Models = append(c.Models, proxy.Model{Name: "judge", BaseURL: judge.BaseURL()})
		c.Sessions.IdleTimeout = 30 * time.Second // a failed end is tried again within a twentieth
		c.Sessions.Program = &extract.Program{Command: []string{"/bin/sh", "check.sh"}, Dir: dir, Timeout: timeout}
		c.Sessions.Judge = &extract.Judge{Model: "judge", Prompt: "{next}"}
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
}

// talk has a session, whose texts are of the user, and returns its rollout and the ids of the replies.
func (l live) talk(t *testing.T, name string, texts ...string) (rollout string, replies []string) {
	t.Helper()
	var messages []string
	for i, text := range texts {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":%q}`, text))
		answer, id := l.call(t, completions, `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`, 200,
			"X-Agl-Session", name, "X-Agl-Turn", fmt.Sprint("t-", i+1), "X-Agl-Done", fmt.Sprint(i == len(texts)-1))
		reply := answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"]
		messages = append(messages, fmt.Sprintf(`{"role":"assistant","content":%q}`, reply))
		rollout, replies = id, append(replies, fmt.Sprint(answer["id"]))
	}
	return rollout, replies
}

// When a session ends, the program and the judge say what it was worth, before anybody can collect it.
func TestSessionsAreRewardedAtTheirEnd(t *testing.T) {
	t.Parallel()
	var log lines
	l := startRewarded(t, memorytest.Open(t), &log, time.Minute)
	id, replies := l.talk(t, "a", "where is my order?", "thanks, and where is the other?", "that is wrong")
	l.awaitEnd(t, id)
	want := fmt.Sprintf("[0.25 program 10 1 judge 0 %s votes: 1 -1 judge 0 %s votes: -1]", replies[0], replies[1])
	if got := fmt.Sprint(l.rewardsOf(t, id)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	id, _ = l.talk(t, "b", "many")
	l.awaitEnd(t, id)
	if got, want := fmt.Sprint(l.rewardsOf(t, id)), "[0.5 program 10 2 program 10 t-1 first 1 program 10]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	id, _ = l.talk(t, "c", "nothing")
	l.awaitEnd(t, id)
	if got := l.rewardsOf(t, id); len(got) > 0 || log.String() != "" {
		t.Errorf("a program that gives no reward: got %v, and the log says %s", got, log.String())
	}
	if text := l.metrics(t); !strings.Contains(text, `agl_proxy_rewards_total{source="program"} 4`) || !strings.Contains(text, `agl_proxy_rewards_total{source="judge"} 2`) {
		t.Errorf("the metrics are %s", text)
	}
}

// What the judge asks counts for the budget of the proxy's project: one in dollars refuses a judge without a price.
func TestJudgeHasTheBudgetOfTheProject(t *testing.T) {
	t.Parallel()
	var log lines
	store := memorytest.Open(t)
	limits := access.NewProjectLimits(func(context.Context) (access.Limits, error) { return access.Limits{MaxUSD: 1}, nil })
	judge := serve(t, proxytest.VLLM(func(string, int) string { return "1" }))
	l := startLive(t, store, func(c *proxy.Config) {
		c.Models[0].Price = &proxy.Price{Prompt: 1, Completion: 1}
		c.Models = append(c.Models, proxy.Model{Name: "judge", BaseURL: judge.BaseURL()})
		c.Sessions.Judge = &extract.Judge{Model: "judge", Prompt: "{next}"}
		c.Budgets, c.Project = access.NewProjectKeys(store, limits), limits
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	id, _ := l.talk(t, "s", "hi", "thanks")
	l.awaitEnd(t, id)
	if asked := judge.Requests(); len(asked) > 0 || !strings.Contains(log.String(), "the model judge has no price") {
		t.Errorf("the judge was asked %d times, and the log says %s", len(asked), log.String())
	}
}

// A program or a judge that fails costs the session its reward, not its end; the log, the metrics and the trace say so.
func TestSessionRewardsFail(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"crash":   "program: the program /bin/sh ended with exit status 3: no database",
		"hang":    "program: the program /bin/sh took longer than its 200ms",
		"garbage": `program: the program /bin/sh wrote "good", must be JSON`,
		"member":  "program: the program wrote {",
		"nothing": `judge: reply chatcmpl-`,
		"unknown": `program: turn: rollout `,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var log lines
			timeout := time.Minute
			if text == "hang" {
				timeout = 200 * time.Millisecond
			}
			l := startRewarded(t, memorytest.Open(t), &log, timeout)
			texts := []string{text}
			if text == "nothing" {
				texts = append(texts, "and then?")
			}
			id, _ := l.talk(t, "s", texts...)
			l.awaitEnd(t, id)
			if got := fmt.Sprint(l.rewardsOf(t, id)); text == "unknown" && got != "[0.5 program 10 1 program 10 t-1]" {
				t.Errorf("the other rewards are %s", got)
			}
			source, message, _ := strings.Cut(want, ": ")
			page, err := l.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id, Name: agl.SpanException})
			if err != nil || page.Total != 1 {
				t.Fatalf("the trace has %d failures, %v, want 1", page.Total, err)
			}
			if kind, _ := page.Items[0].Attributes.GetString(agl.AttrExceptionType); kind != "reward_"+source {
				t.Errorf("the type is %s", kind)
			}
			if got, _ := page.Items[0].Attributes.GetString(agl.AttrExceptionMessage); !strings.HasPrefix(got, message) {
				t.Errorf("the trace says %q, want %q", got, message)
			}
			if !strings.Contains(log.String(), "a session gets no reward") || !strings.Contains(log.String(), id) {
				t.Errorf("the log says %s", log.String())
			}
			if got := l.metrics(t); !strings.Contains(got, `agl_proxy_reward_failures_total{source="`+source+`"} 1`) {
				t.Errorf("the metrics are %s", got)
			}
		})
	}
}

// failingEnds is a store that does not take the end of attempts at first, as if the proxy were killed before it.
type failingEnds struct {
	agl.Store

	mu   sync.Mutex
	left int
}

func (s *failingEnds) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left > 0 {
		s.left--
		return agl.Attempt{}, agl.Errorf(agl.CodeUnavailable, "not now")
	}
	return s.Store.UpdateAttempt(ctx, p)
}

// A session whose end is tried again has each reward once.
func TestSessionRewardsOnce(t *testing.T) {
	t.Parallel()
	var log lines
	store := &failingEnds{Store: memorytest.Open(t), left: 2}
	l := startRewarded(t, store, &log, time.Minute)
	id, replies := l.talk(t, "a", "where is my order?", "thanks")
	l.awaitEnd(t, id)
	want := fmt.Sprintf("[0.25 program 10 1 judge 0 %s votes: 1]", replies[0])
	if got := fmt.Sprint(l.rewardsOf(t, id)); got != want {
		t.Errorf("got %s, want %s; the log says %s", got, want, log.String())
	}
	if !strings.Contains(log.String(), "could not be ended yet") || store.left != 0 {
		t.Errorf("%d tries to end it are left, the log says %s", store.left, log.String())
	}
}

// awayFor is a store that takes no spans while it is away.
type awayFor struct {
	agl.Store

	away atomic.Bool
}

func (s *awayFor) Capabilities() agl.Capabilities { return agl.Capabilities{} }

func (s *awayFor) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	if s.away.Load() {
		return agl.AddSpansResult{}, agl.Errorf(agl.CodeUnavailable, "the store is away")
	}
	return s.Store.AddSpans(ctx, p)
}

// A session that has lost the record of a call while the store was away takes rewards, and ends.
func TestSessionsWithALoss(t *testing.T) {
	t.Parallel()
	var log lines
	store := &awayFor{Store: memorytest.Open(t)}
	l := startLive(t, store, func(c *proxy.Config) {
		c.StoreRetry, c.Logger = time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if err := l.Flush(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	store.away.Store(true)
	l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if err := l.Flush(t.Context(), nil); err == nil {
		t.Fatal("the record was stored")
	}
	store.away.Store(false)
	l.call(t, "/v1/agl/sessions/"+id+"/reward", `{"value":1,"source":"user"}`, 200)
	if got := fmt.Sprint(l.rewardsOf(t, id)); got != "[1 user 30]" {
		t.Errorf("its rewards are %s", got)
	}
	l.call(t, completions, hello, 200, "X-Agl-Session", "s", "X-Agl-Done", "true")
	l.awaitEnd(t, id)
	if !strings.Contains(log.String(), "records of a session, or what it emitted last, were lost") {
		t.Errorf("the log says %s", log.String())
	}
}

// A reward does not wait for the calls that run, unless it is for one of them.
func TestRewardWhileACallRuns(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}), make(chan struct{})
	model := serve(t, proxytest.VLLM(func(prompt string, choice int) string {
		if strings.HasPrefix(prompt, "slow") {
			running <- struct{}{}
			<-release
		}
		return echo(prompt, choice)
	}))
	l := startLive(t, memorytest.Open(t), func(c *proxy.Config) { c.Models[0].BaseURL = model.BaseURL() })
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "s", "X-Agl-Turn", "1")
	var calls sync.WaitGroup
	calls.Go(func() {
		l.call(t, completions, strings.Replace(hello, "hi", "slow", 1), 200, "X-Agl-Session", "s", "X-Agl-Turn", "2")
	})
	<-running
	l.call(t, "/v1/agl/sessions/"+id+"/reward", `{"value":1,"turn":"1","source":"user"}`, 200)
	if got := fmt.Sprint(l.rewardsOf(t, id)); got != "[1 user 30 1]" {
		t.Errorf("its rewards are %s", got)
	}
	calls.Go(func() {
		l.call(t, "/v1/agl/sessions/"+id+"/reward", `{"value":0.5,"turn":"2","source":"user"}`, 200)
	})
	close(release)
	calls.Wait()
	if got := fmt.Sprint(l.rewardsOf(t, id)); got != "[1 user 30 1 0.5 user 30 2]" {
		t.Errorf("its rewards are %s", got)
	}
}
