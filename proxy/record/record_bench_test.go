package record

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy/openai"
)

// BenchmarkConversation reads the request of turn 8 and of turn 128 of a conversation, and writes its record, as for each call.
func BenchmarkConversation(b *testing.B) {
	for _, turns := range []int{8, 128} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			var messages []string
			for range turns {
				messages = append(messages,
					`{"role":"user","content":"`+strings.Repeat("taremo lisu ", 180)+`"}`, `{"role":"assistant","content":"`+strings.Repeat("kavenopi ", 90)+`"}`)
			}
			body := []byte(`{"model":"m","messages":[` + strings.Join(messages[:2*turns-1], ",") + `]}`)
			in := Input{RolloutID: "r", AttemptID: "a", Form: Chat, Request: body, Status: http.StatusOK,
				Reply: []byte(`{"id":"1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yes"}}]}`)}
			var builder Builder
			var spans []byte
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				request, err := openai.ParseRequest(body)
				if err != nil {
					b.Fatal(err)
				}
				in.Checked = request.Checked
				spans, _ = builder.Append(spans[:0], &in, &Position{SequenceID: 1, Name: "1"})
			}
		})
	}
}
