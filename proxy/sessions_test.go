package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// live is a proxy that records sessions in a real store.
type live struct {
	*gateway
	store agl.Store
	model *proxytest.Server
}

func startLive(t *testing.T, store agl.Store, edit func(c *proxy.Config)) live {
	t.Helper()
	model := serve(t, proxytest.VLLM(echo))
	g := start(t, model.BaseURL(), func(c *proxy.Config) {
		c.Spans = store
		c.Sessions = proxy.Sessions{Store: store, IdleTimeout: time.Hour}
		if edit != nil {
			edit(c)
		}
	})
	return live{g, store, model}
}

// call posts with headers, given as pairs, and decodes the answer.
func (l live) call(t *testing.T, path, body string, want int, header ...string) (answer map[string]any, rollout string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.UnmarshalRead(res.Body, &answer); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if res.StatusCode != want {
		t.Fatalf("%s: status %d, want %d: %v", path, res.StatusCode, want, answer)
	}
	return answer, res.Header.Get("Agl-Rollout")
}

const completions = "/v1/chat/completions"

// awaitEnd waits until a rollout has ended, and returns how.
func (l live) awaitEnd(t *testing.T, id string) string {
	t.Helper()
	got, err := l.store.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{id}, Timeout: agl.Some(time.Minute)})
	if err != nil || len(got) != 1 || got[0].Status != agl.RolloutSucceeded {
		t.Fatalf("got %+v, %v, want a session that has ended", got, err)
	}
	attempt, err := l.store.GetLatestAttempt(t.Context(), agl.GetLatestAttemptParams{RolloutID: id})
	if err != nil {
		t.Fatal(err)
	}
	if outcome, ok := attempt.Outcome(); !ok || outcome.Kind != agl.OutcomeOK {
		t.Errorf("the outcome is %+v", outcome)
	}
	why, _ := agl.Attributes(attempt.Metadata).GetString("agl.session_end")
	return why
}

func (l live) triplets(t *testing.T, id string) []adapter.Triplet {
	t.Helper()
	if err := l.Flush(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	page, err := l.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id})
	if err != nil {
		t.Fatal(err)
	}
	triplets, err := adapter.ProxyTriplets{}.Adapt(page.Items)
	if err != nil {
		t.Fatal(err)
	}
	return triplets
}

// Calls with the header are one rollout, until the header says that it is the last one;
// calls without it pass and leave nothing.
func TestSessionsByHeader(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	if _, rollout := l.call(t, completions, hello, 200); rollout != "" {
		t.Errorf("a call without a session is in rollout %s", rollout)
	}
	var group sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids { // at once: they must agree on one rollout
		group.Go(func() {
			_, ids[i] = l.call(t, completions, hello, 200, "X-Agl-Session", "chat-1", "X-Agl-User", "ada")
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("calls of one session are in the rollouts %q", ids)
		}
	}
	_, other := l.call(t, completions, hello, 200, "X-Agl-Session", "chat-2")
	if other == ids[0] {
		t.Errorf("two sessions share rollout %s", other)
	}
	l.call(t, completions, hello, 200, "X-Agl-Session", "chat-1", "X-Agl-User", "ada", "X-Agl-Done", "true")
	if why := l.awaitEnd(t, ids[0]); why != "header" {
		t.Errorf("ended by %q", why)
	}
	if n := len(l.triplets(t, ids[0])); n != 9 {
		t.Errorf("%d calls are recorded, want 9", n)
	}
	r, err := l.store.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: ids[0]})
	if err != nil || string(r.Metadata) != `{"agl.session":"chat-1","agl.user":"ada"}` {
		t.Errorf("the rollout is %+v, %v", r, err)
	}
	if _, again := l.call(t, completions, hello, 200, "X-Agl-Session", "chat-1", "X-Agl-User", "ada"); again == ids[0] || again == "" {
		t.Errorf("the name comes again: got rollout %s after %s", again, ids[0])
	}
	page, err := l.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil || page.Total != 3 {
		t.Errorf("there are %d rollouts, %v, want 3", page.Total, err)
	}
	for _, r := range l.model.Requests() {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Agl-") {
				t.Errorf("the model gets %s", name)
			}
		}
	}
}

// A reward for a turn goes to its last call, also when that comes after the reward, and calls beside the conversation are
// recorded, and not learned from.
func TestSessionsHaveTurns(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	call := func(header ...string) (id, rollout string) {
		answer, rollout := l.call(t, completions, hello, 200, append(header, "X-Agl-Session", "s")...)
		return fmt.Sprint(answer["id"]), rollout
	}
	first, id := call("X-Agl-Turn", "t-1")
	tool, _ := call("X-Agl-Turn", "t-2")
	reward := "/v1/agl/sessions/" + id + "/reward"
	said, _ := l.call(t, reward, `{"value":0.5,"turn":"t-2","idempotency_key":"k"}`, 200)
	answer, _ := call("X-Agl-Turn", "t-2")
	call("X-Agl-Turn", "t-2", "X-Agl-Turn-Type", "Side")
	plain, _ := call("X-Agl-Turn-Type", "main")
	if again, _ := l.call(t, reward, `{"value":0.5,"turn":"t-2","idempotency_key":"k"}`, 200); !maps.Equal(again, said) {
		t.Errorf("the reward again, after another call: got %v, want %v", again, said)
	}
	l.call(t, reward, `{"value":1,"turn":"t-9"}`, 404)
	l.call(t, reward, `{"value":1,"turn":"t-1","call":"`+first+`"}`, 400)
	var got []string
	for _, c := range l.triplets(t, id) {
		got = append(got, fmt.Sprintf("%s %s %v", c.Metadata.ResponseID.V, c.Call.Turn, c.Reward))
	}
	none, half := agl.Null[float64]{}, agl.Some(0.5)
	want := []string{fmt.Sprintf("%s t-1 %v", first, none), fmt.Sprintf("%s t-2 %v", tool, none), fmt.Sprintf("%s t-2 %v", answer, half), fmt.Sprintf("%s  %v", plain, none)}
	if !slices.Equal(got, want) {
		t.Errorf("learned is %q, want %q", got, want)
	}
	page, err := l.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id, Name: agl.SpanLiteLLMRequest})
	if err != nil || page.Total != 5 {
		t.Errorf("%d calls are recorded, %v, want 5", page.Total, err)
	}
}

// A program whose answer was lost starts the session again, and gets the one that it has started.
func TestSessionsStartOnce(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	secured := func(token string) live {
		return startLive(t, l.store, func(c *proxy.Config) { c.KeySecret, c.Token = "a secret of thirty-two characters", token })
	}
	var keys []any
	for _, token := range []string{"a token of the proxy", "a token of another proxy"} {
		started, _ := secured(token).call(t, "/v1/agl/sessions", "", 201, "Idempotency-Key", "k", "Authorization", "Bearer "+token)
		keys = append(keys, started["key"])
	}
	if _, guessed, _ := strings.Cut(fmt.Sprint(keys[0]), "."); strings.HasSuffix(fmt.Sprint(keys[1]), guessed) {
		t.Error("the key of the session does not depend on that of the caller")
	}
	begin := func(body, once, key string, want int) map[string]any {
		answer, _ := l.call(t, "/v1/agl/sessions", body, want, "Idempotency-Key", once, "Authorization", "Bearer "+key)
		return answer
	}
	first, again := begin(`{"user":"ada"}`, "k", "one", 201), begin(`{"user":"ada"}`, "k", "one", 201)
	if !maps.Equal(first, again) {
		t.Errorf("the repeat gets %v, want %v", again, first)
	}
	auth := fmt.Sprint("Bearer ", again["key"])
	if _, rollout := l.call(t, completions, hello, 200, "Authorization", auth); rollout != first["session_id"] {
		t.Errorf("the call is in rollout %s, want %s", rollout, first["session_id"])
	}
	if refused := begin(`{"user":"bob"}`, "k", "one", 409); !strings.Contains(fmt.Sprint(refused), `header Idempotency-Key: got "k", which has started`) {
		t.Errorf("got %v", refused)
	}
	for _, other := range []map[string]any{begin(`{"user":"ada"}`, "other", "one", 201), begin(`{"user":"ada"}`, "k", "another", 201)} {
		if other["session_id"] == first["session_id"] || other["key"] == first["key"] {
			t.Errorf("another request gets the session %v", other)
		}
	}
	l.call(t, "/v1/agl/sessions/"+fmt.Sprint(first["session_id"])+"/end", "", 200, "Authorization", auth)
	begin(`{"user":"ada"}`, "k", "one", 410)
}

// A session with a key of its own: calls, rewards, the end, and what comes after it.
func TestSessionsByKey(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	started, _ := l.call(t, "/v1/agl/sessions", `{"user":"ada","metadata":{"plan":"pro","n":1}}`, 201)
	id, key := fmt.Sprint(started["session_id"]), fmt.Sprint(started["key"])
	if started["base_url"] != l.URL+"/v1" {
		t.Errorf("got %v", started)
	}
	auth := []string{"Authorization", "Bearer " + key}
	first, rollout := l.call(t, completions, hello, 200, auth...)
	if rollout != id {
		t.Errorf("the call is in rollout %s, want %s", rollout, id)
	}
	l.call(t, "/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, 200, "X-Api-Key", key)
	at := "/v1/agl/sessions/" + id
	l.call(t, at+"/reward", fmt.Sprintf(`{"value":0.25,"call":%q,"source":"user"}`, first["id"]), 200, auth...)
	l.call(t, at+"/reward", `{"value":0.5,"call":null,"idempotency_key":"k"}`, 200, auth...)
	l.call(t, at+"/reward", `{"value":0.5,"call":null,"idempotency_key":"k"}`, 200, auth...)
	l.call(t, at+"/reward", `{"value":0.6,"idempotency_key":"k"}`, 409, auth...)
	l.call(t, at+"/reward", `{"value":"x"}`, 400, auth...)
	l.call(t, at+"/reward", `{"value":1,"call":"nope"}`, 404, auth...)
	l.call(t, at+"/end", `{"outcome":"agent_error"}`, 400, auth...)
	l.call(t, at+"/end", `{"outcome":"ok"}`, 200, auth...)
	if why := l.awaitEnd(t, id); why != "call" {
		t.Errorf("ended by %q", why)
	}
	l.call(t, completions, hello, 410, auth...)
	l.call(t, at+"/end", "", 410, auth...)
	l.call(t, at+"/reward", `{"value":1,"source":"human"}`, 200, auth...) // days later
	l.call(t, at+"/reward", `{"value":0,"source":"user"}`, 200, auth...)  // says less than who looks at the record
	triplets := l.triplets(t, id)
	if len(triplets) != 2 || triplets[0].Reward != agl.Some(0.25) || triplets[1].Reward != agl.Some(1.0) {
		t.Errorf("got %+v", triplets)
	}

	for _, wrong := range []string{key + "x", "sk-sess-" + id + ".secret", "sk-sess-", "sk-sess-nope.secret"} {
		l.call(t, completions, hello, 401, "Authorization", "Bearer "+wrong)
	}
	l.call(t, "/v1/agl/sessions", `{"resources":"none"}`, 400)
	// Half of a surrogate pair, as in texts that have been cut.
	cut, _ := l.call(t, "/v1/agl/sessions", `{"user":"a\ud83d","metadata":{"p":"\ud83d","q\ud83d":1}}`, 201)
	l.call(t, fmt.Sprintf("/v1/agl/sessions/%v/reward", cut["session_id"]), `{"value":1,"message":"\ud83d"}`, 200, "Authorization", fmt.Sprint("Bearer ", cut["key"]))
	other, _ := l.call(t, "/v1/agl/sessions", ``, 201)
	// Backends and logs have queries, so a key in one is refused even beside the right header.
	l.call(t, completions+"?key="+fmt.Sprint(other["key"]), hello, 401, "Authorization", fmt.Sprint("Bearer ", other["key"]))
	l.call(t, fmt.Sprintf("/v1/agl/sessions/%v/reward", other["session_id"]), `{"value":1}`, 401, auth...)
	l.call(t, "/v1/agl/sessions", ``, 410, auth...)
	l.call(t, "/v1/agl/sessions", ``, 403, "Authorization", "Bearer "+fmt.Sprint(other["key"]))
	for _, r := range l.model.Requests() {
		if strings.Contains(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), "sk-sess-") {
			t.Error("the model gets the session's key")
		}
	}
}

// A session ends when it is idle, also one of a proxy that is gone.
func TestSessionsEndByThemselves(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	first := startLive(t, store, nil)
	_, left := first.call(t, completions, hello, 200, "X-Agl-Session", "left")
	started, _ := first.call(t, "/v1/agl/sessions", ``, 201)
	if err := first.Proxy.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	second := startLive(t, store, nil)
	_, id := second.call(t, completions, hello, 200, "Authorization", "Bearer "+fmt.Sprint(started["key"]))
	if id != started["session_id"] {
		t.Errorf("the key is of rollout %s, want %v", id, started["session_id"])
	}
	if err := second.Proxy.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	next := startLive(t, store, func(c *proxy.Config) { c.Sessions.IdleTimeout = 300 * time.Millisecond })
	_, own := next.call(t, completions, hello, 200, "X-Agl-Session", "own")
	for _, id := range []string{left, id, own} {
		if why := next.awaitEnd(t, id); why != "idle" {
			t.Errorf("ended by %q", why)
		}
	}
}

// A cancelled session refuses its calls, and its name begins another one.
func TestSessionsCancelled(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if err := l.Flush(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: id}); err != nil {
		t.Fatal(err)
	}
	l.call(t, completions, hello, 200, "X-Agl-Session", "s") // its record tells the proxy
	if err := l.Flush(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	if _, again := l.call(t, completions, hello, 200, "X-Agl-Session", "s"); again == id || again == "" {
		t.Errorf("got rollout %q after %q was cancelled", again, id)
	}
}

// A name whose session was deleted begins another one.
func TestSessionsForgotten(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "s", "X-Agl-Done", "true")
	l.awaitEnd(t, id)
	if err := l.store.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: id}); err != nil {
		t.Fatal(err)
	}
	if _, again := l.call(t, completions, hello, 200, "X-Agl-Session", "s"); again == id || again == "" {
		t.Errorf("got rollout %q after %q was deleted", again, id)
	}
}

// A session that is deleted while it is open, as agl forget does, ends as soon as the proxy learns of it: its name begins another
// one, whose calls are recorded.
func TestOpenSessionForgotten(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if err := l.Flush(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: id}); err != nil {
		t.Fatal(err)
	}
	if err := l.store.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: id}); err != nil {
		t.Fatal(err)
	}
	l.call(t, completions, hello, 200, "X-Agl-Session", "s") // its record tells the proxy
	if err := l.Flush(t.Context(), nil); err == nil {
		t.Error("the record of a session that was deleted is said to be stored")
	}
	_, again := l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if again == id || again == "" {
		t.Errorf("got rollout %q after %q was deleted", again, id)
	}
	if err := l.Flush(t.Context(), []string{again}); err != nil {
		t.Error(err)
	}
}

// Two proxies record a session in one rollout.
func TestSessionsOfTwoProxies(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	a, b := startLive(t, store, nil), startLive(t, store, nil)
	_, one := a.call(t, completions, hello, 200, "X-Agl-Session", "s")
	_, two := b.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if one != two {
		t.Errorf("got the rollouts %s and %s", one, two)
	}
}

// A session that began at a proxy with other settings, or before this proxy was started with others, goes on in its rollout. One that has
// ended does not.
func TestSessionsOfUnlikeProxies(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	a := startLive(t, store, nil)
	b := startLive(t, store, func(c *proxy.Config) { c.Sessions.RewardWindow = time.Hour })
	for _, user := range []string{"", "ada"} {
		from := []string{"X-Agl-Session", "s" + user, "X-Agl-User", user}
		_, one := a.call(t, completions, hello, 200, from...)
		if _, two := b.call(t, completions, hello, 200, append(from, "X-Agl-Consent", "yes")...); one != two {
			t.Errorf("the session of %q is in the rollouts %s and %s", user, one, two)
		}
		a.call(t, completions, hello, 200, append(from, "X-Agl-Done", "true")...)
		a.awaitEnd(t, one)
		c := startLive(t, store, func(c *proxy.Config) { c.Sessions.RewardWindow = time.Minute })
		if _, two := c.call(t, completions, hello, 200, from...); one == two || two == "" {
			t.Errorf("after the session of %q has ended its name has the rollout %q", user, two)
		}
	}
}

// The calls of AReaL's clients.
func TestSessionsOfAReaL(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	started, _ := l.call(t, "/rl/start_session", `{"task_id":"t-1"}`, 200)
	auth := []string{"Authorization", "Bearer " + fmt.Sprint(started["api_key"])}
	answer, rollout := l.call(t, completions, hello, 200, auth...)
	if rollout != started["session_id"] {
		t.Errorf("the call is in rollout %s, want %v", rollout, started["session_id"])
	}
	l.call(t, "/rl/set_reward", fmt.Sprintf(`{"interaction_id":%q,"reward":0.5}`, answer["id"]), 200, auth...)
	l.call(t, "/rl/set_reward", `{"reward":1.0}`, 200, auth...)
	l.call(t, "/rl/set_reward", `{"reward":1.0}`, 401)
	ended, _ := l.call(t, "/rl/end_session", `{}`, 200, auth...)
	if ended["interaction_count"] != 1.0 {
		t.Errorf("got %v", ended)
	}
	l.call(t, "/rl/end_session", `{}`, 410, auth...)
	l.call(t, completions, hello, 410, auth...)

	// The same key again ends the session that it had.
	const key = "sk-my-own-key-of-20"
	mine := []string{"Authorization", "Bearer " + key}
	one, _ := l.call(t, "/rl/start_session", `{"task_id":"t","api_key":"`+key+`"}`, 200)
	l.call(t, completions, hello, 200, mine...)
	two, _ := l.call(t, "/rl/start_session", `{"task_id":"t","api_key":"`+key+`"}`, 200)
	if one["session_id"] == two["session_id"] || two["api_key"] != key {
		t.Errorf("got %v and %v", one, two)
	}
	l.awaitEnd(t, fmt.Sprint(one["session_id"]))
	if _, rollout := l.call(t, completions, hello, 200, mine...); rollout != two["session_id"] {
		t.Errorf("the call is in rollout %s, want %v", rollout, two["session_id"])
	}
}

// Who may start sessions, and what the store's failure does to live calls.
func TestSessionsNeedKeys(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	l := startLive(t, store, func(c *proxy.Config) {
		c.Access, c.RequireKeys = keys, true
	})
	texts := map[access.Scope]string{}
	for _, scope := range []access.Scope{access.Live, access.Ingest} {
		created, err := keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: scope})
		if err != nil {
			t.Fatal(err)
		}
		texts[scope] = "Bearer " + created.Text
	}
	l.call(t, "/v1/agl/sessions", ``, 401)
	l.call(t, "/v1/agl/sessions", ``, 403, "Authorization", texts[access.Ingest])
	l.call(t, completions, hello, 401, "X-Agl-Session", "s")
	started, _ := l.call(t, "/v1/agl/sessions", ``, 201, "Authorization", texts[access.Live])
	l.call(t, completions, hello, 200, "Authorization", "Bearer "+fmt.Sprint(started["key"]))
	l.call(t, completions, hello, 200, "Authorization", texts[access.Live], "X-Agl-Session", "s")
	limited, err := keys.Create(t.Context(), access.NewKey{Name: "limited", Scopes: access.Live, Limits: access.Limits{MaxTokens: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	l.call(t, "/v1/agl/sessions", ``, 403, "Authorization", "Bearer "+limited.Text)
	reward := fmt.Sprintf("/v1/agl/sessions/%v/reward", started["session_id"])
	l.call(t, reward, `{"value":1}`, 200, "Authorization", texts[access.Ingest])
	l.call(t, reward, `{"value":1}`, 401)

	// A name that a key would have gives nobody a key, which would not have the limits of the caller's.
	const secret = "a key that nobody gave me"
	name := fmt.Sprintf("key:%x", sha256.Sum256([]byte(secret)))
	if _, rollout := l.call(t, completions, hello, 200, "Authorization", texts[access.Live], "X-Agl-Session", name); rollout != "" {
		t.Errorf("the call is in rollout %s, want none", rollout)
	}
	l.call(t, completions, hello, 401, "Authorization", "Bearer "+secret)
}

// A proxy that records no sessions says so to those who ask for one, and serves the calls of those who name one.
func TestNoSessions(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := startLive(t, memorytest.Open(t), func(c *proxy.Config) {
		c.Sessions, c.Logger = proxy.Sessions{}, slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, path := range []string{"/v1/agl/sessions", "/rl/start_session", "/rl/set_reward", "/rl/end_session", "/v1/agl/sessions/ro-1/end"} {
		answer, _ := l.call(t, path, `{}`, http.StatusNotFound)
		if got := fmt.Sprint(answer["error"]); !strings.Contains(got, "records no sessions; set --session-idle") {
			t.Errorf("%s: got %s", path, got)
		}
	}
	for range 3 {
		if _, rollout := l.call(t, completions, hello, 200, "X-Agl-Session", "chat-81"); rollout != "" {
			t.Errorf("the call is in rollout %s", rollout)
		}
	}
	l.Server.Close() // waits for the handlers, which write the log
	if got := strings.Count(log.String(), "a call names a session, but this proxy records none"); got != 1 {
		t.Errorf("the log says %d times that sessions are off, want once: %s", got, log.String())
	}
}

// The key of a session ends when that of its attempt is revoked, like the keys of other attempts.
func TestRevokedSession(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	l := startLive(t, store, func(c *proxy.Config) { c.Revoked = access.NewRevocations(keys.RevokedAttempts, 0) })
	started, _ := l.call(t, "/v1/agl/sessions", "{}", http.StatusCreated)
	id, key := started["session_id"].(string), "Bearer "+started["key"].(string)
	l.call(t, completions, hello, http.StatusOK, "Authorization", key)
	if _, err := keys.RevokeAttempt(t.Context(), agl.Claim{RolloutID: id}, "test"); err != nil {
		t.Fatal(err)
	}
	l.call(t, completions, hello, http.StatusUnauthorized, "Authorization", key)
	l.call(t, "/v1/agl/sessions/"+id+"/reward", `{"value":1}`, http.StatusUnauthorized, "Authorization", key)
	l.call(t, "/v1/agl/sessions", "{}", http.StatusCreated)
}

// While the models are not served yet, as in a run that has just been started again, calls of sessions wait a little, and begin none that
// would have another version than the one that is meant for it.
func TestSessionsWaitForModels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, ready := memorytest.Open(t), make(chan struct{})
		releases := release.New(store)
		r, err := releases.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{Model: "w1"}, Model: "m", By: "test"})
		if err == nil {
			_, err = releases.Do(t.Context(), r.ID, release.ActPromote, "test", "")
		}
		if err != nil {
			t.Fatal(err)
		}
		p := unplugged(t, func(r *http.Request) (string, error) { return completion(r.URL.Host, nil, nil), nil }, &spans{}, func(c *proxy.Config) {
			c.Sessions = proxy.Sessions{Store: store, Releases: releases, IdleTimeout: time.Hour, Ready: ready}
		})
		ask := func(path string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(hello))
			if path != completions {
				r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
			}
			r.Header.Set(proxy.HeaderSession, "chat")
			p.ServeHTTP(w, r)
			return w
		}
		for _, path := range []string{completions, "/v1/agl/sessions", "/rl/start_session"} {
			if w := ask(path); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "not served yet") {
				t.Errorf("%s: got %d %s, want that the models are not served yet", path, w.Code, w.Body)
			}
		}
		if page, err := store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{}); err != nil || page.Total != 0 {
			t.Errorf("%d sessions have begun, %v", page.Total, err)
		}
		go func() {
			time.Sleep(time.Second)
			if err := p.SetModels([]proxy.Model{{Name: "m", BaseURL: "http://first/v1"}, {Name: "w1", BaseURL: "http://promoted/v1"}}); err != nil {
				t.Error(err)
			}
			close(ready)
		}()
		if w := ask(completions); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "promoted") {
			t.Errorf("got %d %s, want the answer of what was promoted", w.Code, w.Body)
		}
		closed(t, p)
	})
}
