package gateway_test

import (
	"slices"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// A call through the proxy that failed, or whose agent left before it had the reply, is not ok for a trainer of v1.0 either, whatever
// its HTTP status is.
func TestForeignCallsThatFailed(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := open(t, gateway.Config{Store: s, Runners: true})
	c.must("POST", "/api/rollouts", `[{"input":1,"rollout_id":"free"}]`)
	claimed, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
	if err != nil || len(claimed.Rollouts) != 1 {
		t.Fatalf("claimed: got %v and %v", claimed.Rollouts, err)
	}
	call := func(id string, code agl.StatusCode, delivered bool) agl.Span {
		attributes, err := agl.NewAttributes(agl.Attr{Key: agl.AttrGenAIRequestModel, Value: "m"}, agl.Attr{Key: record.AttrStatus, Value: 200},
			agl.Attr{Key: record.AttrDelivered, Value: delivered})
		if err != nil {
			t.Fatal(err)
		}
		return agl.Span{
			RolloutID: "free", AttemptID: claimed.Rollouts[0].Attempt.AttemptID, SpanID: id, Name: agl.SpanLiteLLMRequest,
			Status: agl.SpanStatus{Code: code}, Attributes: attributes,
		}
	}
	_, err = s.AddSpans(t.Context(), agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{
		call("1", agl.StatusOK, true), call("2", agl.StatusError, true), call("3", agl.StatusOK, false),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range elements(c.must("GET", "/api/rollouts/free/events?format=triplet&dedupe=none", "")) {
		data, _ := rawjson.Get(e, "data")
		status, _ := rawjson.Get(data, "status")
		got = append(got, rawjson.Unquote(status))
	}
	if want := []string{"ok", "error", "error"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
