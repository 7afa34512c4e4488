package search_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/search"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// add makes a rollout of one attempt with a span for each of the attributes.
func add(t *testing.T, store agl.Store, input, outcome string, attributes ...string) {
	t.Helper()
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(input)}})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range attributes {
		s := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: int64(i + 1), SpanID: fmt.Sprint(i), Name: "call", Attributes: agl.Attributes(a)}
		if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{s}}); err != nil {
			t.Fatal(err)
		}
	}
	status := agl.AttemptSucceeded
	if outcome != "ok" {
		status = agl.AttemptFailed
	}
	_, err = store.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status, Metadata: jsontext.Value(`{"agentlightning.outcome":{"kind":"` + outcome + `","message":""}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func inputs(items []agl.AttemptedRollout) string {
	var out []string
	for i := range items {
		out = append(out, string(items[i].Input))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func filled(t *testing.T) agl.Store {
	t.Helper()
	store := memorytest.Open(t)
	add(t, store, `1`, "ok", `{"gen_ai.prompt.0.content":"Wie GROSS ist die Erde?","agentlightning.model.version":"v1"}`)
	add(t, store, `2`, "agent_error", `{"gen_ai.completion.0.content":["So groß \u0041ls"],"gen_ai.request.model":"tiny","turns":3}`, `{"tool":"look","flag":true}`)
	add(t, store, `3`, "panic", `{"exception.message":"boom","other":"groß"}`)
	add(t, store, `{"q":"Größe"}`, "ok")
	if _, err := store.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`"boom"`)}}}); err != nil {
		t.Fatal(err)
	}
	return store
}

func TestFind(t *testing.T) {
	t.Parallel()
	store := filled(t)
	for _, tc := range []struct {
		p    search.Params
		want string
	}{
		{search.Params{}, `"boom" 1 2 3 {"q":"Größe"}`},
		{search.Params{Text: "gro"}, "1 2"},
		{search.Params{Text: "GROß"}, "2"}, // the other one is in no message
		{search.Params{Text: "größe"}, `{"q":"Größe"}`},
		{search.Params{Text: "als"}, "2"}, // it is escaped in the document
		{search.Params{Text: "boom"}, `"boom" 3`},
		{search.Params{Text: "nothing"}, ""},
		{search.Params{Version: "v1"}, "1"},
		{search.Params{Version: "tiny"}, "2"},
		{search.Params{Version: "v"}, ""},
		{search.Params{OutcomeIn: []agl.OutcomeKind{agl.OutcomeAgentError, agl.OutcomePanic}}, "2 3"},
		{search.Params{OutcomeIn: []agl.OutcomeKind{}}, ""},
		{search.Params{Attributes: []agl.Label{{Name: "turns", Value: "3"}, {Name: "tool", Value: "look"}, {Name: "flag", Value: "true"}}}, "2"},
		{search.Params{Attributes: []agl.Label{{Name: "tool", Value: "loo"}}}, ""},
		{search.Params{Attributes: []agl.Label{{Name: "tool", Value: "look"}}, Version: "v1"}, ""},
		{search.Params{Filters: agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutFailed}}, Text: "boom"}, "3"},
	} {
		got, err := search.Find(t.Context(), store, tc.p)
		if err != nil || inputs(got.Items) != tc.want || got.Next != "" {
			t.Errorf("%+v: got %q, next %q, error %v, want %q", tc.p, inputs(got.Items), got.Next, err, tc.want)
		}
	}
}

// An exception is found where OpenTelemetry records it, among the events of a span.
func TestFindExceptions(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
	if err != nil {
		t.Fatal(err)
	}
	events := []agl.SpanEvent{{Name: "retry", Attributes: agl.Attributes(`{"n":"other"}`)}, {Name: "exception", Attributes: agl.Attributes(`{"exception.message":"Division by zero"}`)}}
	s := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: 1, SpanID: "1", Name: "tool", Events: events}
	if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{s}}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"division": "1", "other": ""} {
		if got, err := search.Find(t.Context(), store, search.Params{Text: text}); err != nil || inputs(got.Items) != want {
			t.Errorf("%s: got %q, error %v, want %q", text, inputs(got.Items), err, want)
		}
	}
}

// Each search goes on where the one before ended, also one whose time was over.
func TestFindGoesOn(t *testing.T) {
	t.Parallel()
	store := filled(t)
	for _, p := range []search.Params{{Limit: 1}, {Limit: 2}, {TimeLimit: 1}, {Text: "o", Limit: 1}} {
		all, err := search.Find(t.Context(), store, search.Params{Text: p.Text, TimeLimit: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var items []agl.AttemptedRollout
		looked := 0
		for {
			got, err := search.Find(t.Context(), store, p)
			if err != nil {
				t.Fatal(err)
			}
			items, looked = append(items, got.Items...), looked+got.Looked
			if p.After = got.Next; p.After == "" {
				break
			}
		}
		if inputs(items) != inputs(all.Items) || looked != 5 {
			t.Errorf("%+v: found %q of %d, want %q of 5", p, inputs(items), looked, inputs(all.Items))
		}
	}
}

// deleting is a store that deletes the last rollouts of the first page that is read.
type deleting struct {
	agl.Store

	most, pages int
}

func (d *deleting) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	page, err := d.Store.QueryRollouts(ctx, p)
	if d.pages++; d.pages > 1 || err != nil {
		return page, err
	}
	for _, r := range page.Items[len(page.Items)-d.most:] {
		if _, err := d.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: r.RolloutID}); err != nil {
			return page, err
		}
		if err := d.DeleteRollout(ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID}); err != nil {
			return page, err
		}
	}
	return page, nil
}

// A search goes on although the rollout that it has examined last is deleted.
func TestFindAmongDeletions(t *testing.T) {
	t.Parallel()
	for deleted, code := range map[int]agl.Code{0: "", 1: "", 150: "", 200: agl.CodeUnavailable} {
		d := &deleting{Store: memorytest.Open(t), most: deleted}
		rollouts := make([]agl.EnqueueRollout, 300)
		for i := range rollouts {
			rollouts[i].Input = jsontext.Value(fmt.Sprint(i))
		}
		queued, err := d.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: rollouts})
		if err != nil {
			t.Fatal(err)
		}
		found, err := search.Find(t.Context(), d, search.Params{Limit: search.MaxLimit, TimeLimit: time.Hour})
		if agl.ErrorCode(err) != code {
			t.Errorf("%d deleted: error %v, want code %q", deleted, err, code)
		}
		if code == "" && (len(found.Items) != len(queued) || found.Looked != len(queued) || found.Next != "") {
			t.Errorf("%d deleted: found %d, looked at %d, next %q, want %d", deleted, len(found.Items), found.Looked, found.Next, len(queued))
		}
	}
}
