package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/store"
)

// An agent calls a model through the proxy, which records the call for its attempt.
func Example() {
	ctx := context.Background()
	model := proxytest.NewServer(proxytest.VLLM(func(string, int) string { return "4" }))
	defer model.Close()
	records, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer records.Close(ctx)

	p, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "qwen", BaseURL: model.BaseURL()}}, Spans: records})
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Start(ctx)
	defer p.Close(ctx)
	gateway := httptest.NewServer(p)
	defer gateway.Close()

	r, err := records.StartRollout(ctx, agl.StartRolloutParams{})
	if err != nil {
		fmt.Println(err)
		return
	}
	url := gateway.URL + "/rollout/" + r.RolloutID + "/attempt/" + r.Attempt.AttemptID + "/v1/chat/completions"
	reply, err := http.Post(url, "application/json", strings.NewReader(`{"model":"qwen","messages":[{"role":"user","content":"2+2?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		fmt.Println(err)
	}
	fmt.Println(reply.Status)

	if err := p.Flush(ctx, []string{r.RolloutID}); err != nil { // the record is stored
		fmt.Println(err)
	}
	spans, err := records.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, Name: agl.SpanLiteLLMRequest})
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, _ := spans.Items[0].Attributes.Get(agl.AttrResponseTokenIDs)
	fmt.Println("sampled token ids:", string(ids))
	// Output:
	// 200 OK
	// sampled token ids: [52]
}
