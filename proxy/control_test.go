package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/record"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// Members are forced, given where there are none, and forbidden; all else stays
// as it was spelled.
func TestControlRequest(t *testing.T) {
	t.Parallel()
	control := &proxy.Control{
		Force:   []byte(`{"temperature":1.0,"seed":12345678901234567890}`),
		Default: []byte(`{"max_tokens":64,"top_p":0.9}`),
		Forbid:  []string{"n", "logit_bias"},
	}
	for _, tt := range []struct{ name, body, want, message string }{
		{name: "forced", body: `{"model":"m","temperature":0.2, "x": [1.0, {"a":1e2}]}`, want: `{"model":"m","x":[1.0, {"a":1e2}],"temperature":1.0,"seed":12345678901234567890,"max_tokens":64,"top_p":0.9}`},
		{name: "given", body: `{"model":"m","max_tokens":7,"top_p":null}`, want: `{"model":"m","max_tokens":7,"temperature":1.0,"seed":12345678901234567890,"top_p":0.9}`},
		{name: "spelled in escapes", body: `{"model":"m","\u0074emperature":0}`, want: `{"model":"m","temperature":1.0,"seed":12345678901234567890,"max_tokens":64,"top_p":0.9}`},
		{name: "in another case", body: `{"model":"m","TEMPERATURE":0,"Max_Tokens":7}`, want: `{"model":"m","Max_Tokens":7,"temperature":1.0,"seed":12345678901234567890,"top_p":0.9}`},
		{name: "forbidden in another case", body: `{"model":"m","Logit_Bias":{}}`, message: `the parameter \"Logit_Bias\" may not be set`},
		{name: "forbidden", body: `{"model":"m","n":4}`, message: `the parameter \"n\" may not be set`},
		{name: "forbidden, null", body: `{"model":"m","n":null}`, want: `{"model":"m","n":null,"temperature":1.0,"seed":12345678901234567890,"max_tokens":64,"top_p":0.9}`},
		{name: "no object", body: `[`, message: "JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := ""
				p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(r.Body)
					got = string(body)
					return ok(), err
				}, func(c *proxy.Config) { c.Models[0].TextOnly = true }, "backend")
				if err := p.SetControl("ro-1", control); err != nil {
					t.Fatal(err)
				}
				w := ask(t.Context(), p, attemptPath, tt.body, nil)
				if tt.message != "" {
					if w.Code != 400 || !strings.Contains(w.Body.String(), tt.message) || got != "" {
						t.Errorf("%d %s", w.Code, w.Body)
					}
				} else if got != tt.want {
					t.Errorf("the backend got\n%s\nwant\n%s", got, tt.want)
				}
				for _, path := range []string{"/v1/chat/completions", "/rollout/ro-2/attempt/at-1/v1/chat/completions"} {
					if ask(t.Context(), p, path, hello, nil); got != hello {
						t.Errorf("%s: the backend got %s", path, got)
					}
				}
				if err := p.SetControl("ro-1", nil); err != nil {
					t.Error(err)
				}
				if ask(t.Context(), p, attemptPath, hello, nil); got != hello {
					t.Errorf("without a control the backend got %s", got)
				}
				closed(t, p)
			})
		})
	}
}

func TestControlInvalid(t *testing.T) {
	t.Parallel()
	p, _ := plugged(t, nil, nil, "backend")
	for want, control := range map[string]*proxy.Control{
		"control.force":       {Force: []byte(`[1]`)},
		"control.default":     {Default: []byte(`{"a":}`)},
		"control.forbid[1]":   {Forbid: []string{"n", "model"}},
		"control.budget":      {Budget: proxy.Budget{Tokens: -1}},
		"control.budget.over": {Budget: proxy.Budget{Over: "stop"}},
	} {
		if err := p.SetControl("r", control); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := p.SetControl("", &proxy.Control{}); !errors.Is(err, agl.ErrInvalid) {
		t.Error(err)
	}
	closed(t, p)
}

// budgeted answers with 90 + 30 tokens.
func budgeted(*http.Request) (*http.Response, error) {
	return respond(200, nil, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":90,"completion_tokens":30}}`), nil
}

// A spent budget ends the calls of an attempt; another attempt has its own.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		budget  proxy.Budget
		allowed int // calls, one a second
		message string
	}{
		{"calls", proxy.Budget{Calls: 3}, 3, "budget of 3 calls"},
		{"tokens", proxy.Budget{Tokens: 200}, 2, "budget of 200 tokens is spent: it has used 240"},
		{"time", proxy.Budget{Seconds: 4.5}, 5, "budget of 4.5 seconds"},
		{"the first of several", proxy.Budget{Calls: 2, Tokens: 1000, Seconds: 100}, 2, "budget of 2 calls"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, store := plugged(t, budgeted, func(c *proxy.Config) { c.Control.Budget = tt.budget }, "backend")
				for _, attempt := range []string{"at-1", "at-2"} {
					for i := range tt.allowed + 2 {
						w := ask(t.Context(), p, "/rollout/ro-1/attempt/"+attempt+"/v1/chat/completions", hello, nil)
						switch {
						case i < tt.allowed && w.Code != 200:
							t.Errorf("call %d: %d %s", i, w.Code, w.Body)
						case i >= tt.allowed && (w.Code != 429 || w.Header().Get(proxy.HeaderOutcome) != "budget" || w.Header().Get("X-Should-Retry") != "false" ||
							!strings.Contains(w.Body.String(), tt.message) || !strings.Contains(w.Body.String(), `"code":"budget_exceeded"`)):
							t.Errorf("call %d: %d %v %s", i, w.Code, w.Header(), w.Body)
						}
						time.Sleep(time.Second)
					}
				}
				if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != 2*(tt.allowed+2) {
					t.Errorf("%d calls on record, %v", len(store.calls()), err)
				}
				closed(t, p)
			})
		})
	}
}

// A call that runs when the time of its attempt is over is cancelled at the
// backend. An agent that has seen nothing is told so, another's stream breaks off.
func TestBudgetOfTimeEndsRunningCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		over proxy.OverBudget
		open bool // the reply has begun
		code int
		want string
	}{
		{"nothing seen", proxy.OverError, false, 429, "budget of 10 seconds is spent"},
		{"nothing seen, length", proxy.OverLength, false, 200, `"finish_reason":"length"`},
		{"in a stream", proxy.OverError, true, 200, `"a "`},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var cancelled time.Duration
			p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
				hang := func() error {
					<-r.Context().Done()
					cancelled = time.Since(began)
					return r.Context().Err()
				}
				if !tt.open {
					return nil, hang()
				}
				res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
				res.ContentLength = -1
				res.Body = io.NopCloser(io.MultiReader(strings.NewReader(streamOf("a", "b")[0]), reader(func([]byte) (int, error) { return 0, hang() })))
				return res, nil
			}, func(c *proxy.Config) { c.Control.Budget = proxy.Budget{Seconds: 10, Over: tt.over} }, "backend")
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, attemptPath, strings.NewReader(strings.Replace(hello, "{", fmt.Sprintf(`{"stream":%v,`, tt.open), 1)))
			func() {
				defer func() {
					if broken := recover() != nil; broken != tt.open {
						t.Errorf("%s: the connection was broken: %v", tt.name, broken)
					}
				}()
				p.ServeHTTP(w, r)
			}()
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) || cancelled != 10*time.Second {
				t.Errorf("%s: cancelled after %v: %d %s", tt.name, cancelled, w.Code, w.Body)
			}
			if got := w.Header().Get(proxy.HeaderOutcome); (got == "budget") == tt.open {
				t.Errorf("%s: outcome %q", tt.name, got)
			}
			if err := p.Flush(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			for _, c := range store.calls() {
				if attribute(t, &c, record.AttrOutcome) != "budget" || !strings.Contains(c.Status.Description.V, "budget of 10 seconds") {
					t.Errorf("%s: recorded as %s, %+v", tt.name, c.Attributes, c.Status)
				}
			}
			closed(t, p)
		})
	}
}

type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// A time that no time.Duration holds is a long one.
func TestBudgetOfCenturies(t *testing.T) {
	t.Parallel()
	for _, seconds := range []float64{9_999_999_999, math.MaxFloat64} {
		synctest.Test(t, func(t *testing.T) {
			b := newPausable(t, func(c *proxy.Config) { c.Control.Budget.Seconds = seconds })
			b.calls(1)
			b.expect(1, 0, 200)
		})
	}
}

// An empty reply that ends for its length has the form that the path and the
// stream want.
func TestBudgetLength(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, store := plugged(t, budgeted, nil, "backend")
		for i, path := range []string{"/chat/completions", "/completions", "/responses", "/messages"} {
			for _, stream := range []bool{false, true} {
				rollout := fmt.Sprintf("r%d-%v", i, stream)
				if err := p.SetControl(rollout, &proxy.Control{Budget: proxy.Budget{Seconds: 1e-9, Over: proxy.OverLength}}); err != nil {
					t.Fatal(err)
				}
				at := "/rollout/" + rollout + "/attempt/a/v1" + path
				ask(t.Context(), p, at, hello, nil) // the time begins with the first call
				time.Sleep(time.Second)
				w := ask(t.Context(), p, at, strings.Replace(hello, "{", fmt.Sprintf(`{"stream":%v,`, stream), 1), nil)
				if w.Code != 200 || w.Header().Get(proxy.HeaderOutcome) != "budget" {
					t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
				}
				last := w.Body.String()
				if stream {
					if w.Header().Get("Content-Type") != "text/event-stream" {
						t.Errorf("%s: %s", path, w.Header().Get("Content-Type"))
					}
					for line := range strings.SplitSeq(last, "\n") {
						data, is := strings.CutPrefix(line, "data: ")
						if is && data != "[DONE]" {
							checkJSON(t, path, data)
						}
					}
				} else {
					checkJSON(t, path, last)
				}
				if !strings.Contains(last, `"finish_reason":"length"`) && !strings.Contains(last, `"stop_reason":"max_tokens"`) && !strings.Contains(last, `"reason":"max_output_tokens"`) {
					t.Errorf("%s: %s", path, last)
				}
				if strings.Contains(last, "MODEL") || strings.Contains(last, "CREATED") || !strings.Contains(last, `"model":"m"`) {
					t.Errorf("%s: %s", path, last)
				}
			}
		}
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for _, c := range store.calls() {
			if strings.Contains(c.Status.Description.V, "budget") && c.Status.Code != agl.StatusError {
				t.Errorf("recorded as %+v", c.Status)
			}
		}
		closed(t, p)
	})
}

func checkJSON(t *testing.T, what, text string) {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%s: %v in %s", what, err, text)
	}
}

func TestControlAdmin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := plugged(t, budgeted, nil, "backend")
		client := &http.Client{Transport: through{p, "127.0.0.1:5"}}
		remote := &proxy.Client{BaseURL: "http://localhost", HTTP: client}
		want := proxy.Control{
			Force: []byte(`{"temperature":1.0}`), Default: []byte(`{"a":1}`), Forbid: []string{"n"},
			Budget: proxy.Budget{Calls: 1, Tokens: 2, Seconds: 3, Over: proxy.OverLength},
		}
		if err := remote.SetControl(t.Context(), "r/1", &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, p.Control("r/1")); diff != "" {
			t.Error(diff)
		}
		const wire = `{"force":{"temperature":1.0},"default":{"a":1},"forbid":["n"],"budget":{"calls":1,"tokens":2,"seconds":3,"over":"length"}}`
		if got := admin(t, client, "", http.MethodGet, "/admin/rollouts/r%2F1/control", ""); got != wire {
			t.Errorf("got %s", got)
		}
		if err := remote.SetControl(t.Context(), "r/1", &proxy.Control{Forbid: []string{"stream"}}); !errors.Is(err, agl.ErrInvalid) {
			t.Error(err)
		}
		if err := remote.SetControl(t.Context(), "r/1", nil); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(proxy.Control{}, p.Control("r/1")); diff != "" {
			t.Error(diff)
		}
		for path, want := range map[string]string{"/admin/rollouts//control": "unknown admin", "/admin/rollouts/a/b/control": "unknown admin"} {
			if got := admin(t, client, "", http.MethodPut, path, "{}"); !strings.Contains(got, want) {
				t.Errorf("%s: %s", path, got)
			}
		}
		closed(t, p)
	})
}

// Models and the control of all rollouts are replaced together, or not at all.
func TestReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := plugged(t, budgeted, nil, "backend")
		good := []proxy.Model{{Name: "n", BaseURL: "http://other/v1"}}
		control := proxy.Control{Forbid: []string{"n"}}
		if err := p.Reload(good, proxy.Control{Forbid: []string{""}}); !errors.Is(err, agl.ErrInvalid) || p.Models()[0].Name != "m" {
			t.Errorf("%v, and the models are %v", err, p.Models())
		}
		if err := p.Reload([]proxy.Model{{}}, control); !errors.Is(err, agl.ErrInvalid) || len(p.Control("r").Forbid) != 0 {
			t.Errorf("%v, and the control is %v", err, p.Control("r"))
		}
		if err := p.Reload(good, control); err != nil || p.Models()[0].Name != "n" || len(p.Control("r").Forbid) != 1 {
			t.Errorf("%v, %v, %v", err, p.Models(), p.Control("r"))
		}
		closed(t, p)
	})
}

// A call that was made before gets the same reply without the backend, whole or
// streamed, until the weights change; its record says so.
func TestCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
			calls++
			body, err := io.ReadAll(r.Body)
			switch {
			case bytes.Contains(body, []byte("fail")):
				return respond(400, nil, `{"error":{"message":"no"}}`), err
			case bytes.Contains(body, []byte("no end")):
				return respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"), err
			case bytes.Contains(body, []byte("an error")):
				return respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "data: {\"error\":{\"message\":\"out of memory\"}}\n\ndata: [DONE]\n\n"), err
			case bytes.Contains(body, []byte(`"stream":true`)):
				return respond(200, http.Header{"Content-Type": {"text/event-stream"}},
					fmt.Sprintf("data: {\"id\":\"s%d\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"token_ids\":[7]}],\"prompt_token_ids\":[1]}\n\ndata: [DONE]\n\n", calls)), err
			case bytes.Contains(body, []byte("an answer that is one")):
				return respond(200, nil, `{"error":{"message":"out of memory"}}`), err
			case bytes.Contains(body, []byte("nothing")):
				return respond(200, nil, ""), err
			case bytes.Contains(body, []byte("a page")):
				return respond(200, http.Header{"Content-Type": {"text/html"}}, "<html>busy</html>"), err
			case bytes.Contains(body, []byte("half of it")):
				return respond(200, nil, `{"id":"c","cho`), err
			case bytes.Contains(body, []byte("long")):
				return respond(200, nil, `{"x":"`+strings.Repeat("y", 1<<20)+`"}`), err
			}
			return respond(200, nil, completion(fmt.Sprint("c", calls), []int{1}, []int{2})), err
		}, func(c *proxy.Config) { c.CacheBytes = 1 << 20 }, "a")
		expect := func(what, body string, header http.Header, made int) string {
			t.Helper()
			before := calls
			w := ask(t.Context(), p, attemptPath, body, header)
			hit := w.Header().Get(proxy.HeaderCache) == "hit"
			if calls-before != made || hit != (made == 0) {
				t.Errorf("%s: %d calls, want %d; hit %v", what, calls-before, made, hit)
			}
			return w.Body.String()
		}
		first := expect("first", `{"model":"m","a":1.0,"messages":[{"role":"user","content":"x"}]}`, nil, 1)
		again := expect("the same in another order", `{ "messages":[{"content":"x","role":"user"}], "a":1.0, "model":"m"}`, nil, 0)
		if first != again || strings.Contains(first, "token_ids") {
			t.Errorf("%s became %s", first, again)
		}
		expect("another number", `{"model":"m","a":1.5,"messages":[{"role":"user","content":"x"}]}`, nil, 1)
		expect("another key", `{"model":"m","a":1.5,"messages":[{"role":"user","content":"x"}]}`, http.Header{"Authorization": {"Bearer x"}}, 1)
		expect("not wanted", `{"model":"m","a":1.5,"messages":[{"role":"user","content":"x"}]}`, http.Header{"Cache-Control": {"no-store"}}, 1)
		stream := expect("stream", `{"model":"m","stream":true,"messages":[]}`, nil, 1)
		if got := expect("stream again", `{"model":"m","stream":true,"messages":[]}`, nil, 0); got != stream || !strings.HasSuffix(got, "[DONE]\n\n") {
			t.Errorf("%q became %q", stream, got)
		}
		for range 2 {
			expect("a failure is not kept", `{"model":"m","fail":1}`, nil, 1)
			for _, what := range []string{"an answer that is one", "nothing", "a page", "half of it"} {
				expect(what+" is not kept", `{"model":"m","`+what+`":1}`, nil, 1)
			}
			expect("nor a stream without its last event", `{"model":"m","stream":true,"messages":["no end"]}`, nil, 1)
			expect("nor one with an error", `{"model":"m","stream":true,"messages":["an error"]}`, nil, 1)
			expect("nor is what is too long", `{"model":"m","long":1}`, nil, 1)
		}
		models := p.Models()
		models[0].Version = "2"
		if err := p.SetModels(models); err != nil {
			t.Fatal(err)
		}
		expect("other weights", `{"model":"m","a":1.0,"messages":[{"role":"user","content":"x"}]}`, nil, 1)
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		hits := 0
		for _, c := range store.calls() {
			if attribute(t, &c, record.AttrCached) == "true" {
				hits++
				if attribute(t, &c, agl.AttrResponseTokenIDs) == "" {
					t.Errorf("a hit without token ids: %s", c.Attributes)
				}
			}
		}
		if hits != 2 {
			t.Errorf("%d hits on record, want 2", hits)
		}
		closed(t, p)
	})
}

// Replicas behind one address, such as with a key each, are one series that counts the calls of all.
func TestMetricsOfOneAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := plugged(t, budgeted, nil, "backend", "backend", "other")
		const calls = 60
		for i := range calls {
			ask(t.Context(), p, "/v1/chat/completions", hello, http.Header{"X-Session-Id": {strconv.Itoa(i)}})
		}
		sent := 0
		for line := range strings.Lines(admin(t, &http.Client{Transport: through{p, "127.0.0.1:5"}}, "", http.MethodGet, "/metrics", "")) {
			if n, ok := strings.CutPrefix(line, "agl_proxy_tries_total{"); ok {
				_, n, _ = strings.Cut(strings.TrimSpace(n), "} ")
				of, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				sent += of
			}
		}
		if sent != calls {
			t.Errorf("%d of %d calls are counted", sent, calls)
		}
		closed(t, p)
	})
}

// Metrics count every call, and the log has a line for each, without contents
// unless they are asked for.
func TestMetricsAndLog(t *testing.T) {
	t.Parallel()
	for _, contents := range []bool{false, true} {
		t.Run(fmt.Sprint("contents ", contents), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
					if err := r.Context().Err(); err != nil {
						return nil, err
					}
					if r.Header.Get("X-Request-ID") != "" {
						return respond(400, nil, "{}"), nil
					}
					return budgeted(r)
				}, func(c *proxy.Config) {
					c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
					c.LogCalls, c.LogContents = true, contents
					c.ForwardPaths = []string{"/made-up"}
					c.Models[0].APIKey = "sk-secret"
				}, "backend")
				ask(t.Context(), p, attemptPath, hello, nil)
				ask(t.Context(), p, attemptPath, hello, http.Header{"X-Request-Id": {"1"}})
				ask(t.Context(), p, "/v1/embeddings", `{"model":"m"}`, nil)
				ask(t.Context(), p, "/v1/made-up", `{"model":"made up"}`, nil)
				gone, leave := context.WithCancel(t.Context())
				leave()
				ask(gone, p, attemptPath, hello, nil)
				client := &http.Client{Transport: through{p, "127.0.0.1:5"}}
				got := admin(t, client, "", http.MethodGet, "/metrics", "")
				for _, want := range []string{
					`agl_proxy_total{model="m",path="/chat/completions",status="200"} 1`,
					`agl_proxy_total{model="m",path="/chat/completions",status="400"} 1`,
					`agl_proxy_total{model="m",path="/embeddings",status="200"} 1`,
					`agl_proxy_total{model="unknown",path="other",status="404"} 1`,
					`agl_proxy_total{model="m",path="/chat/completions",status="499"} 1`,
					`agl_proxy_latency_count{model="m",path="/chat/completions",status="200"} 1`,
					`agl_proxy_tokens_total{kind="prompt",model="m"} 180`,
					`agl_proxy_tokens_total{kind="completion",model="m"} 60`,
					`agl_proxy_backend_up{backend="http://backend/v1",model="m"} 1`,
					`agl_proxy_backend_calls{backend="http://backend/v1",model="m"} 0`,
					`agl_proxy_paused 0`,
					`agl_proxy_calls{state="running"} 0`,
				} {
					if !strings.Contains(got, want+"\n") {
						t.Errorf("no %s in\n%s", want, got)
					}
				}
				if got := admin(t, &http.Client{Transport: through{p, "10.0.0.1:5"}}, "", http.MethodGet, "/metrics", ""); !strings.Contains(got, "loopback") {
					t.Errorf("from elsewhere: %s", got)
				}
				log := lines.String()
				if n := strings.Count(log, `msg="model call"`); n != 5 {
					t.Errorf("%d lines for 5 calls:\n%s", n, log)
				}
				for _, want := range []string{"rollout=ro-1", "status=200", "prompt_tokens=90", "completion_tokens=30", "tries=1", "backend=http://backend/v1"} {
					if !strings.Contains(log, want) {
						t.Errorf("no %s in\n%s", want, log)
					}
				}
				if strings.Contains(log, "messages") != contents {
					t.Errorf("contents in\n%s", log)
				}
				if strings.Contains(log, "sk-secret") || strings.Contains(got, "sk-secret") {
					t.Error("a key is in the log or the metrics")
				}
				closed(t, p)
			})
		})
	}
}
