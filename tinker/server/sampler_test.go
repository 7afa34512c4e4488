package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/wire"
)

// retrieve submits a call and returns its result.
func retrieve(t *testing.T, s *Server, path, body string) map[string]any {
	t.Helper()
	f := call(t, s, "POST", path, body, 200)
	return call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, f["request_id"]), 200)
}

func openSampler(t *testing.T, s *Server, session string, n int, source string) string {
	t.Helper()
	body := fmt.Sprintf(`{"session_id":%q,"sampling_session_seq_id":%d,%s}`, session, n, source)
	return call(t, s, "POST", wire.CreateSamplingSession, body, 200)["sampling_session_id"].(string)
}

// ask asks a sampling session for a greedy completion.
func ask(sampler string, seq int, more string) string {
	return fmt.Sprintf(`{"sampling_session_id":%q,"seq_id":%d,"prompt":{"chunks":[{"tokens":[1,2,3]}]},"sampling_params":{"max_tokens":6,"temperature":0%s`, sampler, seq, more)
}

func tokens(t *testing.T, result map[string]any) string {
	t.Helper()
	if result["error"] != nil {
		t.Fatal(result)
	}
	return fmt.Sprint(result["sequences"].([]any)[0].(map[string]any)["tokens"])
}

// The base model has the weights with which a model of seed 0 begins.
func TestBaseModelIsSampled(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{})
	defer s.Close()
	session, _ := newModel(t, s)
	made := retrieve(t, s, wire.CreateModel, fmt.Sprintf(`{"session_id":%q,"model_seq_id":1,"base_model":"agl-policy"}`, session))
	path := retrieve(t, s, wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":1,"path":"a"}`, made["model_id"]))["path"]
	base := openSampler(t, s, session, 0, `"base_model":"agl-policy"`)
	fresh := openSampler(t, s, session, 1, fmt.Sprintf(`"model_path":%q`, path))
	want := tokens(t, retrieve(t, s, wire.Sample, ask(fresh, 0, `}}`)))
	if got := tokens(t, retrieve(t, s, wire.Sample, ask(base, 0, `}}`))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	got := tokens(t, retrieve(t, s, wire.Sample, `{"base_model":"agl-policy","prompt":{"chunks":[{"tokens":[1,2,3]}]},"sampling_params":{"max_tokens":6,"temperature":0}}`))
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	call(t, s, "POST", wire.CreateSamplingSession, fmt.Sprintf(`{"session_id":%q,"sampling_session_seq_id":9,"base_model":"llama"}`, session), 404)
	call(t, s, "POST", wire.CreateSamplingSession, fmt.Sprintf(`{"session_id":%q,"sampling_session_seq_id":9}`, session), 400)
	for id, want := range map[string]any{base: nil, fresh: path} {
		if got := call(t, s, "GET", wire.SamplerPath(id), "", 200); got["model_path"] != want || got["base_model"] != "agl-policy" || got["sampler_id"] != id {
			t.Errorf("%v", got)
		}
	}
	call(t, s, "GET", wire.SamplerPath("x"), "", 404)
}

// A prompt's log-probabilities are those of the trainer, in both encodings; the first token has none.
func TestPromptLogprobs(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{})
	defer s.Close()
	session, m := newModel(t, s)
	path := retrieve(t, s, wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":1,"path":"a"}`, m))["path"]
	sampler := openSampler(t, s, session, 0, fmt.Sprintf(`"model_path":%q`, path))
	forward := retrieve(t, s, wire.Forward, fmt.Sprintf(`{"model_id":%q,"seq_id":2,"forward_input":{"loss_fn":"cross_entropy","data":[
		{"model_input":{"chunks":[{"tokens":[1,2]}]},"loss_fn_inputs":{"target_tokens":{"data":[2,3]}}}]}}`, m))
	trainer := forward["loss_fn_outputs"].([]any)[0].(map[string]any)["logprobs"].(map[string]any)["data"].([]any)
	want := append([]any{nil}, trainer...)
	got := retrieve(t, s, wire.Sample, ask(sampler, 0, `},"prompt_logprobs":true}`))
	if diff := cmp.Diff(want, got["prompt_logprobs"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f := call(t, s, "POST", wire.Sample, ask(sampler, 1, `},"prompt_logprobs":true,"prompt_logprobs_last_n":1}`), 200)
	last := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, f["request_id"]), 200)
	if diff := cmp.Diff([]any{nil, nil, want[2]}, last["prompt_logprobs"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	req := httptest.NewRequestWithContext(t.Context(), "POST", wire.Prefix+wire.RetrieveFuture, strings.NewReader(fmt.Sprintf(`{"request_id":%q}`, f["request_id"])))
	req.Header.Set("Accept", wire.ProtobufType)
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	// A null is NaN in protobuf, the quiet one of 4 bytes.
	prompt := []float32{float32(math.NaN()), float32(math.NaN()), float32(want[2].(float64))}
	packed, err := binary.Append(nil, binary.LittleEndian, prompt)
	if err != nil {
		t.Fatal(err)
	}
	if body := rec.Body.Bytes(); rec.Header().Get("Content-Type") != wire.ProtobufType || !bytes.HasSuffix(body, packed) {
		t.Errorf("%x does not end with %x", body, packed)
	}
}

// A completion ends with the token that completes a stop text, whether the text lies within a token, spans several, or
// begins in the middle of a character.
func TestStopTexts(t *testing.T) {
	t.Parallel()
	// Tokens are two bytes each, of which the second is a letter.
	decode := func(ids []int32) string {
		var b []byte
		for _, id := range ids {
			b = append(binary.AppendUvarint(b, uint64('0'+id)), byte('a'+id))
		}
		return string(b)
	}
	s := newServer(t, Config{Decode: decode})
	defer s.Close()
	session, _ := newModel(t, s)
	sampler := openSampler(t, s, session, 0, `"base_model":"agl-policy"`)
	all := retrieve(t, s, wire.Sample, ask(sampler, 0, `}}`))["sequences"].([]any)[0].(map[string]any)
	var ids []int32
	for _, id := range all["tokens"].([]any) {
		ids = append(ids, int32(id.(float64)))
	}
	for i, stop := range []string{
		decode(ids[:1]), decode(ids[:2])[1:], decode(ids[:3])[2:5], decode(ids[:6]), "never", decode(ids[5:])[1:],
	} {
		n, reason := 1, "stop"
		for n <= len(ids) && !strings.Contains(decode(ids[:n]), stop) {
			n++
		}
		if n > len(ids) {
			n, reason = len(ids), "length"
		}
		got := retrieve(t, s, wire.Sample, ask(sampler, i+1, fmt.Sprintf(`,"stop":["zzz",%q]}}`, stop)))["sequences"].([]any)[0].(map[string]any)
		want := map[string]any{"stop_reason": reason, "tokens": all["tokens"].([]any)[:n], "logprobs": all["logprobs"].([]any)[:n]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stop %q (-want +got):\n%s", stop, diff)
		}
	}
	call(t, s, "POST", wire.Sample, ask(sampler, 99, `,"stop":""}}`), 400)
	mute := newServer(t, Config{})
	defer mute.Close()
	session, _ = newModel(t, mute)
	sampler = openSampler(t, mute, session, 0, `"base_model":"agl-policy"`)
	out := call(t, mute, "POST", wire.Sample, ask(sampler, 0, `,"stop":"x"}}`), 400)
	if !strings.Contains(out["detail"].(string), "stop: this engine knows tokens") {
		t.Error(out)
	}
}

// Open weights of sampling sessions are closed for others. Those with a name are opened again, and never replaced by another
// snapshot that got the name.
func TestSamplersMakeRoom(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{MaxSamplers: 1})
	defer s.Close()
	session, m := newModel(t, s)
	seq := 0
	save := func(what string) map[string]any {
		seq++
		return retrieve(t, s, wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,%s}`, m, seq, what))
	}
	path := save(`"path":"a"`)["path"].(string)
	named := openSampler(t, s, session, 0, fmt.Sprintf(`"model_path":%q`, path))
	unnamed := save(`"sampling_session_seq_id":7`)["sampling_session_id"].(string)
	want := tokens(t, retrieve(t, s, wire.Sample, ask(unnamed, 0, `}}`)))
	if got := tokens(t, retrieve(t, s, wire.Sample, ask(named, 0, `}}`))); got != want {
		t.Errorf("opened again: %s, want %s", got, want)
	}
	out := call(t, s, "POST", wire.Sample, ask(unnamed, 1, `}}`), 410)
	if !strings.Contains(out["detail"].(string), "saved without a name") {
		t.Error(out)
	}
	call(t, s, "DELETE", wire.CheckpointPath(strings.Split(path, "/")[2], "sampler_weights", "a"), "", 200)
	if got := tokens(t, retrieve(t, s, wire.Sample, ask(named, 1, `}}`))); got != want {
		t.Errorf("after the deletion: %s, want %s", got, want)
	}
	seq++
	retrieve(t, s, wire.OptimStep, step(m, seq, 0.1))
	save(`"path":"a"`)
	openSampler(t, s, session, 1, fmt.Sprintf(`"model_path":%q`, path))
	call(t, s, "POST", wire.Sample, ask(named, 2, `}}`), 410)
}

// Weights without a name are closed only when no open weights have a name.
func TestNamedSamplersMakeRoomFirst(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{MaxSamplers: 2})
	defer s.Close()
	session, m := newModel(t, s)
	save := func(seq int, what string) map[string]any {
		return retrieve(t, s, wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,%s}`, m, seq, what))
	}
	unnamed := save(1, `"sampling_session_seq_id":7`)["sampling_session_id"].(string)
	source := fmt.Sprintf(`"model_path":%q`, save(2, `"path":"a"`)["path"])
	var named []string
	for n := range 3 {
		named = append(named, openSampler(t, s, session, n, source))
	}
	want := tokens(t, retrieve(t, s, wire.Sample, ask(unnamed, 0, `}}`)))
	for round := range 2 {
		for _, id := range named {
			if got := tokens(t, retrieve(t, s, wire.Sample, ask(id, round, `}}`))); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
	if got := tokens(t, retrieve(t, s, wire.Sample, ask(unnamed, 1, `}}`))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// Those without a name make room for each other, the oldest first.
	second := save(3, `"sampling_session_seq_id":8`)["sampling_session_id"].(string)
	third := save(4, `"sampling_session_seq_id":9`)["sampling_session_id"].(string)
	call(t, s, "POST", wire.Sample, ask(unnamed, 2, `}}`), 410)
	for _, id := range []string{second, third} {
		call(t, s, "POST", wire.Sample, ask(id, 0, `}}`), 200)
	}
}

// The number of models is bounded. Whatever ends one makes room for another.
func TestModelsAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{MaxModels: 2})
	defer s.Close()
	session, m := newModel(t, s)
	path := retrieve(t, s, wire.SaveWeights, fmt.Sprintf(`{"model_id":%q,"seq_id":1,"path":"a"}`, m))["path"]
	load := func(n int, path any, want int) map[string]any {
		t.Helper()
		return call(t, s, "POST", wire.LoadWeights, fmt.Sprintf(`{"session_id":%q,"model_seq_id":%d,"path":%q,"optimizer":true}`, session, n, path), want)
	}
	// Weights that cannot be loaded leave no model.
	for n := range 3 {
		f := load(10+n, "tinker://agl-policy-1/weights/none", 200)
		out := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, f["request_id"]), 200)
		if out["code"] != "not_found" {
			t.Fatal(out)
		}
		call(t, s, "POST", wire.GetInfo, fmt.Sprintf(`{"model_id":"%s:train:%d"}`, session, 10+n), 404)
	}
	f := load(1, path, 200)
	if again := load(1, path, 200); again["request_id"] != f["request_id"] {
		t.Errorf("a repeat is another call: %v, %v", f, again)
	}
	out := load(2, path, 400)
	if !strings.Contains(out["detail"].(string), "2 models are in training") {
		t.Error(out)
	}
	loaded := session + ":train:1"
	call(t, s, "POST", wire.GetInfo, fmt.Sprintf(`{"model_id":%q}`, loaded), 200)
	retrieve(t, s, wire.OptimStep, step(loaded, 1, 0.1))
	retrieve(t, s, wire.UnloadModel, fmt.Sprintf(`{"model_id":%q}`, loaded))
	load(3, path, 200)
	load(4, path, 400)
}

func TestUnsupportedIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{})
	defer s.Close()
	session, m := newModel(t, s)
	for _, c := range []struct{ path, body, want string }{
		{wire.CreateModel, `"model_seq_id":5,"session_id":"` + session + `","lora_config":{"rank":-1}`, "rank: -1 is negative"},
		{wire.CreateModel, `"model_seq_id":5,"session_id":"` + session + `","lora_config":{"rank":8,"train_mlp":false}`, "lora_config.train_mlp: false is not supported"},
		{wire.CreateModel, `"model_seq_id":5,"session_id":"` + session + `","optimizer_config":{"type":"dimuon"}`, `optimizer_config: "dimuon" is not supported; allowed is "adamw"`},
		{wire.LoadWeights, `"session_id":"` + session + `","model_seq_id":1,"optimizer_config":{"type":"dimuon"}`, `"dimuon" is not supported`},
		{wire.LoadWeights, `"session_id":"` + session + `"`, "model_seq_id: is needed"},
		{wire.OptimStep, `"model_id":"` + m + `","optimizer_params":{"type":"dimuon"}`, `optimizer_params: the optimizer "dimuon"`},
		{wire.SaveWeightsForSampler, `"model_id":"` + m + `","path":"a","kind":"inflight"`, `kind: "inflight" is not supported; allowed is "snapshot"`},
	} {
		out := call(t, s, "POST", c.path, "{"+c.body+"}", 400)
		if !strings.Contains(out["detail"].(string), c.want) {
			t.Errorf("%s %s: %v", c.path, c.body, out)
		}
	}
	for _, cfg := range []Config{{MaxModels: -1}, {MaxSamplers: -1}} {
		cfg.Service = s.cfg.Service
		if _, err := New(cfg); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestBearerIsAKeyToo(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{APIKey: "k"})
	defer s.Close()
	call(t, s, "POST", wire.ClientConfig, `{}`, 200, "Authorization", "Bearer k")
	call(t, s, "POST", wire.ClientConfig, `{}`, 401, "Authorization", "Bearer x")
	call(t, s, "POST", wire.ClientConfig, `{}`, 401, "Authorization", "Bearer k", wire.KeyHeader, "x")
}
