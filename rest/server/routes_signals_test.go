package server_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestSignals(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	h := newServer(t, server.Config{Store: s})
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`"q"`)}})
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int, name, attributes string) {
		t.Helper()
		body := fmt.Sprintf(`{"rollout_id":%q,"attempt_id":%q,"sequence_id":%d,"trace_id":"t","span_id":"s%d","parent_id":null,"name":%q,`+
			`"status":{"status_code":"OK","description":null},"attributes":%s,"events":[],"links":[],"start_time":%d,"end_time":%[3]d,"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""}}`,
			r.RolloutID, r.Attempt.AttemptID, n, n, name, attributes, n)
		if w := ask(t, h, http.MethodPost, "/v1/agl/spans", body); w.Code != http.StatusCreated {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	add(1, "litellm_request", `{"prompt_token_ids":[1,2],"response_token_ids":[3],"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"hi","gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"ho"}`)
	add(2, "agentlightning.annotation", `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.5}`)
	path := "/v1/agl/rollouts/" + r.RolloutID + "/"
	for what, want := range map[string]string{
		"triplets": `"response_token_ids":[3]`, "trajectories": `"token_ids":[1,2,3],"mask":[false,false,true]`, "messages": `{"items":[{"messages":[{"role":"user","content":"hi"}`,
		"triplets?source=tracer": `{"items":[`,
	} {
		if w := ask(t, h, http.MethodGet, path+what, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want %s", what, w.Code, w.Body, want)
		}
	}
	if w := ask(t, h, http.MethodGet, path+"triplets?source=x", ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "source: got") {
		t.Errorf("a wrong source: got %d %s", w.Code, w.Body)
	}
	if w := ask(t, h, http.MethodGet, "/v1/agl/rollouts/none/triplets", ""); w.Code != http.StatusNotFound {
		t.Errorf("an unknown rollout: got %d %s", w.Code, w.Body)
	}
	w := ask(t, h, http.MethodPost, "/v1/agl/batches", `{"rollout_ids":["`+r.RolloutID+`"],"prompt_length":4,"response_length":2,"pad_token_id":9}`)
	z, err := zip.NewReader(bytes.NewReader(w.Body.Bytes()), int64(w.Body.Len()))
	if err != nil {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	f, err := z.Open("prompts.npy")
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, f); !strings.Contains(got, "'descr': '<i8', 'fortran_order': False, 'shape': (1, 4)") || !strings.HasSuffix(got, "\x09\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00") {
		t.Errorf("got %q", got)
	}
	for body, want := range map[string]string{`{}`: "rollout_ids", `{"rollout_ids":[],"level":"x"}`: "level: got", `{"rollout_ids":[],"prompt_length":-1}`: "got -1 and 0, must be from 0", `{"rollout_ids":[],"prompt_length":1000000000}`: "must be from 0 to 16777216"} {
		if w := ask(t, h, http.MethodPost, "/v1/agl/batches", body); w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
		}
	}
}
