package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// weighed weighs the attributes of the spans that are read.
type weighed struct {
	agl.Store

	all, most int // bytes: of all pages, of the largest
}

func (s *weighed) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	page, err := s.Store.QuerySpans(ctx, p)
	size := 0
	for i := range page.Items {
		size += len(page.Items[i].Attributes)
	}
	s.all, s.most = s.all+size, max(s.most, size)
	return page, err
}

// What commands read of a conversation, and keep of it, does not grow with the square of its turns.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	const turns = 200
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	said := func(turn int) string { return fmt.Sprintf("turn-%d ", turn) + strings.Repeat("word ", 50) }
	var prompt strings.Builder
	whole := 0
	for turn := range turns {
		fmt.Fprintf(&prompt, `"gen_ai.prompt.%d.role":"user","gen_ai.prompt.%[1]d.content":%q,`, 2*turn, said(turn))
		s := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: int64(turn + 1),
			TraceID: fmt.Sprintf("%032x", turn+1), SpanID: fmt.Sprintf("%016x", turn+1), Name: agl.SpanLiteLLMRequest,
			Attributes: agl.Attributes(fmt.Sprintf(`{%s"gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"reply-%d",`+
				`"prompt_token_ids":[%s0],"gen_ai.usage.prompt_tokens":10,"gen_ai.usage.completion_tokens":1}`, prompt.String(), turn, strings.Repeat("1,", turn))),
		}
		if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{s}}); err != nil {
			t.Fatal(err)
		}
		whole += len(s.Attributes)
		fmt.Fprintf(&prompt, `"gen_ai.prompt.%d.role":"assistant","gen_ai.prompt.%[1]d.content":"reply-%d",`, 2*turn+1, turn)
	}
	run := func(use func(context.Context, *console.Console, agl.Store) error) (printed string, read *weighed) {
		var out bytes.Buffer
		read = &weighed{Store: store}
		if err := use(t.Context(), &console.Console{Out: &out, Err: &out}, read); err != nil {
			t.Fatal(err)
		}
		return out.String(), read
	}
	printed, read := run((&rolloutsCommand{Sort: "started"}).use)
	if want := 200 * turns; !strings.Contains(printed, "2000+200") || read.all > want {
		t.Errorf("agl rollouts has read %d bytes, want at most %d, and printed\n%s", read.all, want, printed)
	}
	printed, read = run((&spansCommand{rolloutArg: rolloutArg{Rollout: "latest"}}).use)
	if want := 200 * turns; strings.Count(printed, "10+1 tokens") != turns || read.all > want {
		t.Errorf("agl spans has read %d bytes, want at most %d, and printed\n%.2000s", read.all, want, printed)
	}
	printed, read = run((&spansCommand{rolloutArg: rolloutArg{Rollout: "latest"}, listFlags: listFlags{JSON: true}}).use)
	if want := whole / 2; strings.Count(printed, "prompt_token_ids") != turns || read.most > want {
		t.Errorf("agl spans --json has read %d of %d bytes at once, want at most %d", read.most, whole, want)
	}
	printed, read = run((&traceCommand{rolloutArg: rolloutArg{Rollout: "latest"}}).use)
	if want := whole * 3 / 5; read.most > want {
		t.Errorf("agl trace has read %d of %d bytes at once, want at most %d", read.most, whole, want)
	}
	if strings.Contains(printed, "conversation 2") || strings.Count(printed, "10+1 tokens") != turns {
		t.Errorf("agl trace has printed\n%.2000s", printed)
	}
	for turn := range turns {
		if n := strings.Count(printed, said(turn)[:10]); n == 0 || !strings.Contains(printed, fmt.Sprintf("reply-%d\n", turn)) {
			t.Fatalf("agl trace has not printed turn %d", turn)
		}
	}
}

// An exception that ended spans is told with its stack trace, once; tasks are shown as they were written.
func TestTraceOfException(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`{"q":"\u4e2d\u6587"}`)}})
	if err != nil {
		t.Fatal(err)
	}
	exception := func(message string) []agl.SpanEvent {
		return []agl.SpanEvent{{Name: "exception", Attributes: agl.Attributes(`{"exception.type":"ValueError","exception.message":"` + message + `","exception.stacktrace":"Traceback\n  line 3 ` + message + `"}`)}}
	}
	failed := agl.SpanStatus{Code: agl.StatusError}
	spans := []agl.Span{
		{Name: "agent", Status: failed, Events: exception("odd")},
		{Name: "tool", Status: failed, Events: exception("odd"), ParentID: agl.Some("1")},
		{Name: "retried", Status: agl.SpanStatus{Code: agl.StatusOK}, Events: exception("handled"), ParentID: agl.Some("1")},
	}
	for i := range spans {
		s := &spans[i]
		s.RolloutID, s.AttemptID, s.SequenceID, s.SpanID = r.RolloutID, r.Attempt.AttemptID, int64(i+1), fmt.Sprint(i+1)
	}
	if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: spans}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&traceCommand{rolloutArg: rolloutArg{Rollout: "latest"}}).use(t.Context(), &console.Console{Out: &out, Err: &out}, store); err != nil {
		t.Fatal(err)
	}
	printed := out.String()
	for text, times := range map[string]int{`input {"q": "中文"}`: 1, "error ValueError: odd": 2, "exception in tool\n  Traceback\n    line 3 odd\n": 1, "Traceback": 1, "handled": 0} {
		if got := strings.Count(printed, text); got != times {
			t.Errorf("agl trace has printed %q %d times, want %d:\n%s", text, got, times, printed)
		}
	}
}
