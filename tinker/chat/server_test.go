package chat

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

var update = flag.Bool("update", false, "write the golden files")

// script is a sampling client that answers with fixed texts, one per sample, each with its end mark, truncated to the
// request's bound.
type script struct {
	tok     *Characters
	replies []string
	err     error
	context int
	gate    chan struct{} // if set, Sample waits for it, after it has sent on started
	started chan struct{}

	mu  sync.Mutex
	got tinker.SampleParams
}

func (s *script) Spec() tinker.ModelSpec {
	return tinker.ModelSpec{Name: "script", Vocab: s.tok.Vocab(), Context: s.context}
}

func (s *script) last() tinker.SampleParams {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func (s *script) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	s.mu.Lock()
	s.got = p
	s.mu.Unlock()
	if s.gate != nil {
		s.started <- struct{}{}
		select {
		case <-s.gate:
		case <-ctx.Done():
			return tinker.SampleResult{}, ctx.Err()
		}
	}
	if s.err != nil {
		return tinker.SampleResult{}, s.err
	}
	var res tinker.SampleResult
	for i := range p.NumSamples {
		ids, err := s.tok.Encode(s.replies[i%len(s.replies)])
		if err != nil {
			return res, err
		}
		seq := tinker.Sequence{Tokens: append(ids, s.tok.Mark(MarkEnd)), StopReason: tinker.StopToken}
		if len(seq.Tokens) > p.MaxTokens {
			seq.Tokens, seq.StopReason = seq.Tokens[:p.MaxTokens], tinker.StopLength
		}
		for j := range seq.Tokens {
			seq.Logprobs = append(seq.Logprobs, -0.25*float32(j+1))
		}
		res.Sequences = append(res.Sequences, seq)
	}
	return res, nil
}

func newTestServer(t testing.TB, s *script) *Server {
	t.Helper()
	tok, err := NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	s.tok = tok
	if s.context == 0 {
		s.context = 48
	}
	srv, err := NewServer(Config{
		Tokenizer: tok, Renderer: NewRoleMarks(tok),
		Now:   func() time.Time { return time.Unix(1700000000, 0) },
		NewID: func() string { return "chatcmpl-1" },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.SetModel("policy", Model{Client: s, Version: "v1"})
	return srv
}

func post(t *testing.T, h http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

const question = `"model":"policy","messages":[{"role":"user","content":"12 times 7"}]`

func TestReplyForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, fields string
		replies      []string
	}{
		{"plain", ``, []string{"call 12*7"}},
		{"ids-and-logprobs", `,"return_token_ids":true,"logprobs":true`, []string{"ans 1"}},
		{"length", `,"max_tokens":4,"return_token_ids":true`, []string{"call 12*7"}},
		{"choices", `,"n":2,"seed":7`, []string{"ans 1", "ans 2"}},
		{"stop-string", `,"stop":["12"],"return_token_ids":true`, []string{"call 12*7"}},
		{"stream", `,"stream":true`, []string{"ans 1"}},
		{"stream-everything", `,"stream":true,"n":2,"logprobs":1,"return_token_ids":true,"stream_options":{"include_usage":true}`, []string{"a", "no"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := post(t, newTestServer(t, &script{replies: c.replies}), "/v1/chat/completions", "{"+question+c.fields+"}")
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			ext := ".json"
			if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
				ext = ".sse"
			}
			golden(t, c.name+ext, w.Body.Bytes())
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1", 47)
	for _, c := range []struct {
		name, body  string
		sampler     error
		status      int
		param, code string
		says        string
	}{
		{name: "not json", body: `{`, status: 400},
		{name: "no model", body: `{"messages":[{"role":"user","content":"1"}]}`, status: 400, param: "model", code: "missing_required_parameter"},
		{name: "no messages", body: `{"model":"policy","messages":[]}`, status: 400, param: "messages", code: "missing_required_parameter"},
		{name: "unknown model", body: `{"model":"x","messages":[{"role":"user","content":"1"}]}`, status: 404, param: "model", code: "model_not_found"},
		{name: "unknown role", body: `{"model":"policy","messages":[{"role":"system","content":"1"}]}`, status: 400, param: "messages", code: "invalid_value"},
		{name: "foreign character", body: `{"model":"policy","messages":[{"role":"user","content":"é"}]}`, status: 400, param: "messages", code: "invalid_value"},
		{name: "mark in user text", body: `{"model":"policy","messages":[{"role":"user","content":"▼"}]}`, status: 400, param: "messages", code: "invalid_value"},
		{name: "image part", body: `{"model":"policy","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, status: 400, says: `content: part 0 has type "image_url"; only text is supported`},
		{name: "number for text", body: `{"model":"policy","messages":[{"role":"user","content":7}]}`, status: 400, says: ": content: got a number, must be a string"},
		{name: "seed", body: `{` + question + `,"seed":99999999999999999999}`, status: 400, says: ": seed: got 99999999999999999999, is out of range"},
		{name: "too long", body: `{"model":"policy","messages":[{"role":"user","content":"` + long + `"}]}`, status: 400, param: "messages", code: "context_length_exceeded"},
		{name: "tools", body: `{` + question + `,"tools":[{"type":"function"}]}`, status: 400, param: "messages", code: "invalid_value"},
		{name: "temperature", body: `{` + question + `,"temperature":3}`, status: 400, param: "temperature", code: "invalid_value"},
		{name: "top_p", body: `{` + question + `,"top_p":0}`, status: 400, param: "top_p", code: "invalid_value"},
		{name: "n", body: `{` + question + `,"n":0}`, status: 400, param: "n", code: "invalid_value"},
		{name: "max_tokens", body: `{` + question + `,"max_tokens":0}`, status: 400, param: "max_tokens", code: "invalid_value"},
		{name: "stop", body: `{` + question + `,"stop":["1","2","3","4","5"]}`, status: 400, param: "stop", code: "invalid_value"},
		{name: "empty stop", body: `{` + question + `,"stop":""}`, status: 400, param: "stop", code: "invalid_value"},
		{name: "top_logprobs", body: `{` + question + `,"logprobs":true,"top_logprobs":2}`, status: 400, param: "top_logprobs", code: "unsupported_parameter"},
		{name: "penalty", body: `{` + question + `,"presence_penalty":1}`, status: 400, param: "presence_penalty", code: "unsupported_parameter"},
		{name: "logit bias", body: `{` + question + `,"logit_bias":{"1":2}}`, status: 400, param: "logit_bias", code: "unsupported_parameter"},
		{name: "json mode", body: `{` + question + `,"response_format":{"type":"json_object"}}`, status: 400, param: "response_format", code: "unsupported_parameter"},
		{name: "sampler down", body: `{` + question + `}`, sampler: agl.Errorf(agl.CodeUnavailable, "away"), status: 503, code: "unavailable"},
		{name: "sampler broken", body: `{` + question + `}`, sampler: errors.New("boom"), status: 500, code: "internal_error"},
		{name: "sampler timeout", body: `{` + question + `,"stream":true}`, sampler: context.DeadlineExceeded, status: 503, code: "unavailable"},
		{name: "too many messages", body: `{"model":"m","messages":[` + strings.Repeat("{},", 100_000) + `{}]}`, status: 400, code: "invalid_value"},
		{name: "too large", body: `{"model":"` + strings.Repeat("x", 9<<20) + `"}`, status: 413, code: "request_too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := post(t, newTestServer(t, &script{replies: []string{"1"}, err: c.sampler}), "/v1/chat/completions", c.body)
			var body errorBody
			if err := json.Unmarshal(w.Body.Bytes(), &body, json.RejectUnknownMembers(true)); err != nil {
				t.Fatalf("%v in %s", err, w.Body)
			}
			deref := func(s *string) string {
				if s == nil {
					return ""
				}
				return *s
			}
			if w.Code != c.status || deref(body.Error.Param) != c.param || deref(body.Error.Code) != c.code || body.Error.Message == "" || !strings.HasSuffix(body.Error.Message, c.says) {
				t.Errorf("status %d, body %s; want %d, param %q, code %q, %q", w.Code, w.Body, c.status, c.param, c.code, c.says)
			}
		})
	}
}

// The error for a model that cannot be opened says whose fault it is.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{agl.Errorf(agl.CodeNotFound, "none"), 404, "model_not_found"},
		{agl.Errorf(agl.CodeIllegalState, "no weights yet"), 429, "model_not_ready"},
		{agl.Errorf(agl.CodeInvalid, "no path"), 400, "invalid_value"},
		{agl.Errorf(agl.CodeInvalid, "the checksum is wrong: %w", tinker.ErrDamaged), 500, "internal_error"},
		{agl.Errorf(agl.CodeUnavailable, "away"), 503, "unavailable"},
		{errors.New("disk"), 500, "internal_error"},
	} {
		srv := newTestServer(t, &script{})
		srv.cfg.Open = func(context.Context, string) (Model, error) { return Model{}, c.err }
		w := post(t, srv, "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"1"}]}`)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.code) || !strings.Contains(w.Body.String(), c.err.Error()) {
			t.Errorf("%v: %d %s, want %d %s", c.err, w.Code, w.Body, c.status, c.code)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	srv := newTestServer(t, &script{replies: []string{"1"}})
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/health", 200, `{"status":"ok"}`},
		{"GET", "/v1/models", 200, `{"object":"list","data":[{"id":"policy","object":"model","created":1700000000,"owned_by":"agl","max_model_len":48}]}`},
		{"GET", "/models", 200, `{"object":"list","data":[{"id":"policy","object":"model","created":1700000000,"owned_by":"agl","max_model_len":48}]}`},
		{"GET", "/v1/chat/completions", 405, `{"error":{"message":"/v1/chat/completions takes POST, not GET","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}`},
		{"GET", "/v1/models/policy", 200, `{"id":"policy","object":"model","created":1700000000,"owned_by":"agl","max_model_len":48}`},
		{"GET", "/v1/models/a/b", 404, `{"error":{"message":"the model ` + "`a/b`" + ` does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{"POST", "/v1/messages", 404, `{"error":{"message":"unknown URL POST /v1/messages: this server has POST /v1/chat/completions and GET /v1/models; agl proxy in front of it serves the API of Anthropic, too, and that of responses if its configuration says chat_only: true for this model","type":"invalid_request_error","param":null,"code":"unknown_url"}}`},
	} {
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != c.status || w.Body.String() != c.want {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
	}
	if w := post(t, srv, "/chat/completions", "{"+question+"}"); w.Code != http.StatusOK {
		t.Errorf("path without /v1: %d %s", w.Code, w.Body)
	}
}

func TestSamplingParameters(t *testing.T) {
	t.Parallel()
	s := &script{replies: []string{"1"}}
	srv := newTestServer(t, s)
	post(t, srv, "/v1/chat/completions", "{"+question+"}")
	prompt := append([]int32{44}, mustEncode(t, s.tok, "12 times 7")...)
	prompt = append(prompt, 45)
	want := tinker.SampleParams{Prompt: prompt, NumSamples: 1, MaxTokens: 48 - 12, Temperature: 1, TopP: 1, Stop: []int32{47}}
	if diff := cmp.Diff(want, s.last()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	post(t, srv, "/v1/chat/completions", "{"+question+`,"max_tokens":3,"max_completion_tokens":5,"temperature":0,"top_p":0.5,"top_k":3,"seed":-1,"n":2,"stop":"7"}`)
	seed := ^uint64(0)
	want = tinker.SampleParams{Prompt: prompt, NumSamples: 2, MaxTokens: 5, TopP: 0.5, TopK: 3, Seed: &seed, Stop: append([]int32{47}, mustEncode(t, s.tok, "7")...)}
	if diff := cmp.Diff(want, s.last()); diff != "" {
		t.Errorf("all set (-want +got):\n%s", diff)
	}
}

func mustEncode(t *testing.T, tok Tokenizer, text string) []int32 {
	t.Helper()
	ids, err := tok.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// A request finishes on the model with which it began, even if that is replaced or removed meanwhile.
func TestSwapUnderWay(t *testing.T) {
	t.Parallel()
	old := &script{replies: []string{"old"}, gate: make(chan struct{}), started: make(chan struct{}, 1)}
	srv := newTestServer(t, old)
	fresh := &script{tok: old.tok, replies: []string{"new"}, context: 48}
	web := httptest.NewServer(srv)
	defer web.Close()
	call := func() (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+"/v1/chat/completions", strings.NewReader("{"+question+"}"))
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	type answer struct {
		body string
		err  error
	}
	running := make(chan answer, 1)
	go func() {
		body, err := call()
		running <- answer{body, err}
	}()
	<-old.started
	srv.SetModel("policy", Model{Client: fresh, Version: "v2"})
	if body, err := call(); err != nil || !strings.Contains(body, `"new"`) || !strings.Contains(body, `"v2"`) {
		t.Errorf("after the swap: %s, %v", body, err)
	}
	if !srv.RemoveModel("policy") || srv.RemoveModel("policy") {
		t.Error("RemoveModel does not say whether the model was there")
	}
	close(old.gate)
	if a := <-running; a.err != nil || !strings.Contains(a.body, `"old"`) || !strings.Contains(a.body, `"v1"`) {
		t.Errorf("the call under way: %+v", a)
	}
	if body, err := call(); err != nil || !strings.Contains(body, "model_not_found") {
		t.Errorf("after the removal: %s, %v", body, err)
	}
}

func TestClientLeaves(t *testing.T) {
	t.Parallel()
	srv := newTestServer(t, &script{replies: []string{"1"}, gate: make(chan struct{}), started: make(chan struct{}, 1)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader("{"+question+"}")))
	if w.Code != statusClientClosed {
		t.Errorf("status %d, want %d", w.Code, statusClientClosed)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte("{" + question + "}"))
	f.Add([]byte("{" + question + `,"stop":["a"],"logprobs":1,"n":2,"stream":true,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}],"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}],"tools":[]}`))
	f.Add([]byte(`{"model":"m","messages":null,"stop":null,"logprobs":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, fail := decodeRequest(bytes.Clone(body))
		if fail != nil {
			if fail.status != http.StatusBadRequest || fail.Message == "" {
				t.Errorf("error %+v", fail)
			}
			return
		}
		if len(r.Messages) == 0 || r.maxTokens() < 0 || r.Model == "" {
			t.Errorf("accepted %+v", r)
		}
	})
}

// fixed is a sampling client over bytes that always answers with its text.
type fixed string

func (f fixed) Spec() tinker.ModelSpec { return tinker.ModelSpec{} }

func (f fixed) Sample(context.Context, tinker.SampleParams) (tinker.SampleResult, error) {
	ids, err := bytesTokenizer{}.Encode(string(f))
	return tinker.SampleResult{Sequences: []tinker.Sequence{{Tokens: ids, Logprobs: make([]float32, len(ids)), StopReason: tinker.StopToken}}}, err
}
