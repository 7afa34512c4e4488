package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// A store in this process keeps the records of many writes apart, though all are
// built in the same memory.
func TestRecordsInProcess(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("<%d>", i), 1000) }
	i := 0
	p, err := proxy.New(proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: "http://backend/v1"}}, Spans: store,
		Transport: backend(func(*http.Request) (string, error) {
			return fmt.Sprintf(`{"id":"c%d","choices":[{"index":0,"message":{"role":"assistant","content":%q}}]}`, i, text(i)), nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	const calls = 8
	for ; i < calls; i++ {
		call(t.Context(), p, "/rollout/"+r.RolloutID+"/attempt/"+r.Attempt.AttemptID+"/chat/completions")
		if err := p.Flush(t.Context(), nil); err != nil { // each call in a write of its own
			t.Fatal(err)
		}
	}
	closed(t, p)
	page, err := store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID, Name: agl.SpanLiteLLMRequest})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != calls {
		t.Errorf("%d calls recorded, want %d", len(page.Items), calls)
	}
	for i := range page.Items {
		if got, _ := page.Items[i].Attributes.Get(agl.AttrGenAICompletion + ".0.content"); string(got) != fmt.Sprintf("%q", text(i)) {
			t.Errorf("call %d: got %.60s, want %.60s", i, got, text(i))
		}
	}
}
