package server_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
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

// longTalk serves the spans of a conversation, and notes the most bytes of attributes that were read at once.
type longTalk struct {
	agl.Store

	most  int
	after func() // is called after the first read of messages
}

func (s *longTalk) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	page, err := s.Store.QuerySpans(ctx, p)
	size := 0
	for i := range page.Items {
		size += len(page.Items[i].Attributes)
	}
	if s.most = max(s.most, size); s.after != nil && p.Limit > 0 {
		s.after()
	}
	return page, err
}

// The messages of a long conversation are read and sent in parts; those of a rollout that is deleted meanwhile are an error.
func TestMessagesOfLongConversation(t *testing.T) {
	t.Parallel()
	const calls = 200
	s := &longTalk{Store: memorytest.Open(t)}
	h := newServer(t, server.Config{Store: s})
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	var prompt strings.Builder
	whole := 0
	for n := range calls {
		fmt.Fprintf(&prompt, `"gen_ai.prompt.%d.role":"user","gen_ai.prompt.%[1]d.content":"%d %s",`, n, n, strings.Repeat("word ", 20))
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: int64(n + 1), TraceID: fmt.Sprintf("%032x", n+1), SpanID: fmt.Sprintf("%016x", n+1),
			Name: agl.SpanLiteLLMRequest, Attributes: agl.Attributes(fmt.Sprintf(`{%s"gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"reply-%d"}`, prompt.String(), n)),
		}
		whole += len(span.Attributes)
		if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
			t.Fatal(err)
		}
	}
	path := "/v1/agl/rollouts/" + r.RolloutID + "/messages"
	w := ask(t, h, http.MethodGet, path, "")
	var got struct {
		Items []struct {
			Messages []struct {
				Content string `json:"content"`
			} `json:"messages"`
		} `json:"items"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Items) != calls {
		t.Fatalf("got %d %d rows (%v), want %d", w.Code, len(got.Items), err, calls)
	}
	for n, row := range got.Items {
		if len(row.Messages) != n+2 || row.Messages[n+1].Content != fmt.Sprintf("reply-%d", n) {
			t.Fatalf("row %d has %d messages, want %d and its reply", n, len(row.Messages), n+2)
		}
	}
	if want := whole / 2; s.most > want {
		t.Errorf("%d of %d bytes were read at once, want at most %d", s.most, whole, want)
	}
	s.after = func() {
		status := agl.AttemptSucceeded
		_, _ = s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &status})
		_ = s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID})
	}
	if w := ask(t, h, http.MethodGet, path, ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "deleted while they were read: 50 of 200") {
		t.Errorf("while it is deleted: got %d %.300s", w.Code, w.Body)
	}
}
