package tracer_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/tracer"
)

// What the tracer records is what the adapters read: two calls of a
// conversation with a tool, each with tokens, and their rewards.
func TestAdaptersReadTheSpans(t *testing.T) {
	t.Parallel()
	replies := []string{golden(t, "tools.reply"), golden(t, "chat.reply")}
	client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, replies[0])
		replies = replies[1:]
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	_, err := tracer.Do(ctx, "solve", map[string]string{"question": "?"}, func(ctx context.Context) (string, error) {
		for i, name := range []string{"tools.request", "chat.request"} {
			if _, _, err := post(ctx, t, client, url+"/v1/chat/completions", golden(t, name)); err != nil {
				return "", err
			}
			if _, err := tracer.EmitReward(ctx, float64(i)+0.5); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	spans := end(t, open)
	if path := os.Getenv("DUMP_SPANS"); path != "" {
		var lines []byte
		for i := range spans {
			lines = append(spans[i].AppendJSON(lines), '\n')
		}
		if err := os.WriteFile(path, lines, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	triplets, err := adapter.TracerTriplets{}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		prompt, response []int32
		reward           float64
		id               string
	}
	var got []call
	for _, tr := range triplets {
		got = append(got, call{tr.Prompt.TokenIDs, tr.Response.TokenIDs, tr.Reward.Or(-1), tr.Metadata.ResponseID.V})
	}
	want := []call{{[]int32{1}, []int32{4, 5}, 0.5, "chatcmpl-2"}, {[]int32{1, 2, 3, 4, 5}, []int32{7, 8}, 1.5, "chatcmpl-1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("triplets (-want +got): %s", diff)
	}
	if urls := triplets[1].Prompt.ImageURLs; len(urls) != 1 || triplets[1].Response.Logprobs == nil {
		t.Errorf("pictures are %v, log-probabilities %s", urls, triplets[1].Response.Logprobs)
	}
	conversations, err := adapter.Messages{}.Adapt(spans)
	if err != nil || len(conversations) != 2 {
		t.Fatalf("%d conversations, %v", len(conversations), err)
	}
	messages, err := json.Marshal(conversations[0])
	if err != nil {
		t.Fatal(err)
	}
	const wantMessages = `{"messages":[{"role":"user","content":"12 times 7"},{"role":"assistant","content":null,"tool_calls":[{"id":"c0","type":"function","function":{"name":"calc","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"84","tool_call_id":"c0"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"calc","arguments":"{\"a\": 2}"}}]}],"tools":[{"type":"function","function":{"name":"calc","description":"adds","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}]}`
	if string(messages) != wantMessages {
		t.Errorf("conversation\n got %s\nwant %s", messages, wantMessages)
	}
	if reward, err := adapter.FinalReward(spans); err != nil || reward != agl.Some(1.5) {
		t.Errorf("final reward is %v, %v", reward, err)
	}
}
