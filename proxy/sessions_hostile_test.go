package proxy_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Whatever a service names its sessions, each call is answered, each name is one session, and its rewards find it.
func TestSessionsOfAnyName(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	seen := map[string]string{}
	long := strings.Repeat("x", 10<<10)
	for _, name := range []string{"a/b", "a/b/", "../../etc/passwd", "a%2Fb", "?a=b#c", "sitzung-ü-好", "a b", `"quoted"`, long, long + "y", "ro-1", "default", "null"} {
		header := []string{"X-Agl-Session", name, "X-Agl-User", "ada/" + name[:min(len(name), 20)]}
		_, first := l.call(t, completions, hello, 200, header...)
		_, again := l.call(t, completions, hello, 200, header...)
		if first == "" || again != first || seen[first] != "" {
			t.Fatalf("%.40q: calls are in the rollouts %q and %q, that was %.40q's", name, first, again, seen[first])
		}
		seen[first] = name
		l.call(t, "/v1/agl/sessions/"+url.PathEscape(first)+"/reward", `{"value":1}`, 200)
		_, _ = l.call(t, completions, hello, 200, append(header, "X-Agl-Done", "true")...)
		if why := l.awaitEnd(t, first); why != "header" {
			t.Errorf("%.40q ended by %q", name, why)
		}
		r, err := l.store.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: first})
		if got, _ := agl.Attributes(r.Metadata).GetString("agl.session"); err != nil || got != name {
			t.Errorf("the session %.40q is named %.40q, %v", name, got, err)
		}
	}
	for _, id := range []string{"..%2F..%2Frewards", "ro-1%2Fend", strings.Repeat("y", 8<<10), "%00"} {
		l.call(t, "/v1/agl/sessions/"+id+"/reward", `{"value":1}`, 404)
	}
}

// Rewards that are no numbers are refused, and a key with another value, and neither changes what is there.
func TestSessionsRefuseRewards(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), nil)
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "chat")
	path := "/v1/agl/sessions/" + id + "/reward"
	for _, body := range []string{
		`{"value":NaN}`, `{"value":"NaN"}`, `{"value":1e999}`, `{"value":-1e999}`, `{"value":1e200}`, `{"value":Infinity}`, `{"value":null}`, `{}`, `{"value":[1]}`, `{"value":{}}`,
		`{"dimensions":{"primary":1e999}}`, `{"dimensions":{}}`, `{"value":1,"dimensions":{"primary":2}}`, `{"value":1,"at":1e300}`, `{"value":1,"at":-1e300}`,
	} {
		l.call(t, path, body, 400)
	}
	for body, want := range map[string]string{
		`{"value":1,"span":"x"}`:           `body: unknown member "span"`,
		`{"value":1,"call":7}`:             `body: call: got a number, must be a string`,
		`[1]`:                              `body: got a list, must be an object`,
		`{"value":"1"}`:                    `value: got "1", must be a finite number, true or false`,
		`{"dimensions":{"a":"b"}}`:         `dimensions.a: got "b", must be a finite number, true or false`,
		`{"dimensions":1}`:                 `dimensions: got 1, must be an object of numbers, true or false, the primary one first`,
		`{"value":1,"at":1795963152000.5}`: `at: got 1.7959631520005e+12, must be in Unix seconds`,
	} {
		answer, _ := l.call(t, path, body, 400)
		if got := answer["error"].(map[string]any)["message"]; got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	first, _ := l.call(t, path, `{"value":1,"idempotency_key":"k"}`, 200)
	again, _ := l.call(t, path, `{"value":1,"idempotency_key":"k"}`, 200)
	if first["span_id"] != again["span_id"] {
		t.Errorf("a repeat is %v, want %v", again, first)
	}
	l.call(t, path, `{"value":0.5,"idempotency_key":"k"}`, 409)
	l.call(t, path, `{"value":1,"source":"user","idempotency_key":"k"}`, 409)
	page, err := l.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id, Name: agl.SpanAnnotation})
	if err != nil || page.Total != 1 {
		t.Errorf("%d rewards, %v, want 1", page.Total, err)
	}
}

// A body that is too large is refused as one at every route.
func TestSessionsRefuseLargeBodies(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), func(c *proxy.Config) { c.MaxRequestBytes = 1000 })
	large := `{"message":"` + strings.Repeat("x", 1000) + `"}`
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "chat")
	for _, path := range []string{"/v1/agl/sessions", "/v1/agl/sessions/" + id + "/reward", "/v1/agl/sessions/" + id + "/end", "/rl/start_session"} {
		l.call(t, path, large, 413)
	}
}
