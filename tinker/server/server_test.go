package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	engine, err := policy.NewService(policy.Config{Vocab: 8, Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Service = engine
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call makes a request, expects a status, and returns the members of the body.
func call(t *testing.T, s *Server, method, path, body string, want int, header ...string) map[string]any {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, wire.Prefix+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	if rec.Code != want {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, rec.Code, rec.Body, want)
	}
	var out map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil && rec.Header().Get("Content-Type") == wire.JSONType {
		t.Fatalf("%s: %s: %v", path, rec.Body, err)
	}
	return out
}

// newModel makes a session and a model.
func newModel(t *testing.T, s *Server) (session, model string) {
	t.Helper()
	session = call(t, s, "POST", wire.CreateSession, `{"tags":[],"sdk_version":"0.24.1","type":"create_session"}`, 200)["session_id"].(string)
	made := call(t, s, "POST", wire.CreateModel, fmt.Sprintf(`{"session_id":%q,"model_seq_id":0,"base_model":"agl-policy","lora_config":{"rank":8,"seed":1}}`, session), 200)
	result := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, made["request_id"]), 200)
	return session, result["model_id"].(string)
}

func step(model string, seq int, rate float64) string {
	return fmt.Sprintf(`{"model_id":%q,"seq_id":%d,"adam_params":{"learning_rate":%v}}`, model, seq, rate)
}

func TestSequence(t *testing.T) {
	t.Parallel()
	for _, order := range []engines.Order{engines.Arrival, engines.Strict} {
		s := newServer(t, Config{Order: order})
		_, m := newModel(t, s)
		first := call(t, s, "POST", wire.OptimStep, step(m, 1, 0.1), 200)
		if again := call(t, s, "POST", wire.OptimStep, step(m, 1, 0.1), 200); again["request_id"] != first["request_id"] {
			t.Errorf("%q: a repeat is another call: %v, %v", order, first, again)
		}
		conflict := call(t, s, "POST", wire.OptimStep, step(m, 1, 0.2), 409)
		if conflict["detail"] != "Sequence conflict: expected 2, got 1" || conflict["code"] != "conflict" {
			t.Errorf("%q: %v", order, conflict)
		}
		ahead := 200
		if order == engines.Strict {
			ahead = 409
		}
		call(t, s, "POST", wire.OptimStep, step(m, 3, 0.1), ahead)
		result := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, first["request_id"]), 200)
		if result["metrics"].(map[string]any)["agl/step"] != 1.0 {
			t.Errorf("%q: %v", order, result)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		call(t, s, "POST", wire.OptimStep, step(m, 9, 0.1), 503)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{APIKey: "k", MaxBodyBytes: 4096, MaxResults: 1})
	defer s.Close()
	call(t, s, "GET", wire.Healthz, "", 200)
	call(t, s, "POST", wire.ClientConfig, `{}`, 401)
	call(t, s, "POST", wire.ClientConfig, `{}`, 401, wire.KeyHeader, "x")
	key := []string{wire.KeyHeader, "k"}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", wire.ClientConfig, `{"sdk_version":"1","new":1}`, 200, ""},
		{"POST", wire.ClientConfig, `[`, 400, "body: "},
		{"POST", wire.ClientConfig, strings.Repeat(" ", 5000), 400, "larger than 4096 bytes"},
		{"POST", "/nothing", `{}`, 404, "/nothing is unknown"},
		{"POST", wire.SessionHeartbeat, `{"session_id":"x"}`, 404, `session: "x" is unknown: it has ended, or it belongs to an earlier run of the server`},
		{"POST", wire.CreateModel, `{"session_id":"x"}`, 404, `session: "x" is unknown`},
		{"POST", wire.OptimStep, `{"model_id":"x"}`, 404, `model: "x" is unknown`},
		{"POST", wire.OptimStep, `{"model_id":"x","adam_params":{"beta1":0}}`, 400, "beta1 is 0"},
		{"POST", wire.OptimStep, `{"model_id":"x","adam_params":{"learning_rate":-1}}`, 400, "learning_rate: -1"},
		{"POST", wire.ForwardBackward, `{"model_id":"x","forward_backward_input":{"loss_fn":"ppo","data":[]}}`, 400, "the batch is empty"},
		{"POST", wire.ForwardBackward, `{"model_id":"x","forward_input":{"loss_fn":"ppo","data":[]}}`, 400, "takes another input"},
		{"POST", wire.SaveWeights, `{"model_id":"x","path":"../x"}`, 400, "[A-Za-z0-9_-]+"},
		{"POST", wire.CreateSamplingSession, `{"session_id":"x"}`, 404, "session"},
		{"POST", wire.Sample, `{"sampling_params":{"max_tokens":1}}`, 400, "model_path or base_model: one is required"},
		{"POST", wire.Sample, `{"num_samples":5000,"sampling_params":{"max_tokens":1}}`, 400, "num_samples: 5000"},
		{"POST", wire.Sample, `{"sampling_session_id":"x","sampling_params":{"max_tokens":1}}`, 404, `"x" is unknown: it has ended, or it belongs to an earlier run of the server`},
		{"POST", wire.RetrieveFuture, `{"request_id":"1"}`, 404, `"1" is unknown`},
		{"POST", wire.WeightsInfo, `{"tinker_path":"tinker://m/weights/a"}`, 404, ""},
		{"DELETE", wire.CheckpointPath("m", "weights", "a"), "", 404, ""},
		{"DELETE", wire.CheckpointPath("m", "other", "a"), "", 400, "kind"},
	} {
		out := call(t, s, c.method, c.path, c.body, c.status, key...)
		if detail, _ := out["detail"].(string); !strings.Contains(detail, c.want) {
			t.Errorf("%s %s: %q, want %q", c.path, c.body, detail, c.want)
		}
	}
	call(t, s, "POST", wire.ClientConfig, `{}`, 400, append(key, "Content-Encoding", "gzip")...)
}

// The results that were dropped are gone, which is not the same as unknown.
func TestResultsMakeRoom(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{MaxResults: 1})
	defer s.Close()
	_, m := newModel(t, s)
	var ids [2]any
	for i := range ids {
		ids[i] = call(t, s, "POST", wire.OptimStep, step(m, i+1, 0.1), 200)["request_id"]
	}
	call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, ids[1]), 200)
	call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, ids[0]), 410)
	call(t, s, "POST", wire.RetrieveFuture, `{"request_id":"99"}`, 404)
}

// The memory of results is bounded: the oldest are dropped first, and the newest can be read even if it exceeds the bound
// alone.
func TestResultsAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	const each = 16 * 8 // bytes of the numbers of a forward pass over 16 tokens
	forward := func(m string, seq int) string {
		ids := strings.Repeat("1,", 15) + "1"
		return fmt.Sprintf(`{"model_id":%q,"seq_id":%d,"forward_input":{"loss_fn":"cross_entropy","data":[
			{"model_input":{"chunks":[{"tokens":[%s]}]},"loss_fn_inputs":{"target_tokens":{"data":[%s]}}}]}}`, m, seq, ids, ids)
	}
	for _, c := range []struct {
		limit int64
		kept  int
	}{{1, 1}, {3*(each+resultOverhead) - 1, 2}, {3 * (each + resultOverhead), 3}} {
		s := newServer(t, Config{MaxResultBytes: c.limit})
		defer s.Close()
		_, m := newModel(t, s)
		ids := make([]any, 5)
		for i := range ids {
			ids[i] = call(t, s, "POST", wire.Forward, forward(m, i+1), 200)["request_id"]
			call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, ids[i]), 200)
		}
		for i, id := range ids {
			want := 200
			if i < len(ids)-c.kept {
				want = 410
			}
			call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, id), want)
		}
		if s.resultBytes > max(c.limit, each+resultOverhead) {
			t.Errorf("limit %d: the results take %d bytes", c.limit, s.resultBytes)
		}
	}
}

// A small body that decompresses to a large one is refused.
func TestZstd(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{MaxBodyBytes: 1 << 16})
	defer s.Close()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	small := string(enc.EncodeAll([]byte(`{"sdk_version":"1"}`), nil))
	call(t, s, "POST", wire.ClientConfig, small, 200, "Content-Encoding", "zstd")
	bomb := string(enc.EncodeAll(bytes.Repeat([]byte{' '}, 1<<20), nil))
	out := call(t, s, "POST", wire.ClientConfig, bomb, 400, "Content-Encoding", "zstd")
	if !strings.Contains(out["detail"].(string), "when decompressed") {
		t.Error(out)
	}
}

// A session ends SessionTimeout after its last activity, and its models with it, whether it ever sent a heartbeat or
// not.
func TestSessionsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{})
		defer s.Close()
		beat := func(session string, want int) {
			t.Helper()
			call(t, s, "POST", wire.SessionHeartbeat, fmt.Sprintf(`{"session_id":%q}`, session), want)
		}
		info := func(model string, want int) {
			t.Helper()
			call(t, s, "POST", wire.GetInfo, fmt.Sprintf(`{"model_id":%q}`, model), want)
		}
		stopped, a := newModel(t, s)
		silent, b := newModel(t, s)
		working, c := newModel(t, s)
		beat(stopped, 200)
		time.Sleep(4 * time.Minute)
		call(t, s, "POST", wire.OptimStep, step(c, 1, 0.1), 200)
		time.Sleep(2 * time.Minute)
		newModel(t, s) // a request for a session ends those that have expired
		beat(stopped, 404)
		info(a, 404)
		beat(silent, 404)
		info(b, 404)
		info(c, 200)
		time.Sleep(4 * time.Minute)
		beat(working, 404)
		info(c, 404)
	})
}

// A call that takes longer than SessionTimeout keeps its session alive until it has ended.
func TestSessionsOutliveTheirCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := newHooked(t, Config{})
		defer s.Close()
		session, m := newModel(t, s)
		h.saving = func(tinker.SaveWeightsParams) error {
			time.Sleep(time.Hour)
			return nil
		}
		call(t, s, "POST", wire.SaveWeights, fmt.Sprintf(`{"model_id":%q,"seq_id":1,"path":"a"}`, m), 200)
		for range 7 { // the last after the end of the call
			time.Sleep(9 * time.Minute)
			newModel(t, s)
		}
		call(t, s, "POST", wire.SessionHeartbeat, fmt.Sprintf(`{"session_id":%q}`, session), 200)
		time.Sleep(6 * time.Minute)
		call(t, s, "POST", wire.SessionHeartbeat, fmt.Sprintf(`{"session_id":%q}`, session), 404)
	})
}

// A model whose creation takes longer than SessionTimeout has a session that owns it: it does not stay for good.
func TestSessionsOutliveTheCreationOfModels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := newHooked(t, Config{})
		defer s.Close()
		h.creating = func() {
			time.Sleep(6 * time.Minute)
			call(t, s, "POST", wire.CreateSession, `{}`, 200) // ends the sessions that have expired
		}
		session, m := newModel(t, s)
		call(t, s, "POST", wire.SessionHeartbeat, fmt.Sprintf(`{"session_id":%q}`, session), 200)
		time.Sleep(6 * time.Minute)
		call(t, s, "POST", wire.CreateSession, `{}`, 200)
		call(t, s, "POST", wire.GetInfo, fmt.Sprintf(`{"model_id":%q}`, m), 404)
	})
}

// A snapshot can become a sampling session at once, as the SDK does it.
func TestSaveForSamplerOpensASession(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{})
	defer s.Close()
	_, m := newModel(t, s)
	f := call(t, s, "POST", wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":1,"sampling_session_seq_id":0}`, m), 200)
	saved := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, f["request_id"]), 200)
	if saved["path"] != nil {
		t.Errorf("path %v, want null", saved["path"])
	}
	f = call(t, s, "POST", wire.Sample, fmt.Sprintf(`{"sampling_session_id":%q,"seq_id":0,"prompt":{"chunks":[{"tokens":[1]}]},"sampling_params":{"max_tokens":2}}`, saved["sampling_session_id"]), 200)
	out := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, f["request_id"]), 200)
	if n := len(out["sequences"].([]any)); n != 1 {
		t.Errorf("%d sequences", n)
	}
	// Overwriting is asked for by name.
	for i, c := range []struct {
		overwrite bool
		failed    bool
	}{{false, false}, {false, true}, {true, false}} {
		f = call(t, s, "POST", wire.SaveWeights, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,"path":"a","overwrite":%v}`, m, i+2, c.overwrite), 200)
		out = call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, f["request_id"]), 200)
		if failed := out["error"] != nil; failed != c.failed || (failed && (out["category"] != "user" || out["code"] != "conflict")) {
			t.Errorf("save %d: %v", i, out)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	engine, err := policy.NewService(policy.Config{Vocab: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{
		{}, {Service: engine, Encoding: "xml"}, {Service: engine, Order: "random"}, {Service: engine, LongPoll: -time.Second},
	} {
		if _, err := New(cfg); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if got := wire.Status("?"); got != http.StatusInternalServerError {
		t.Error(got)
	}
}
