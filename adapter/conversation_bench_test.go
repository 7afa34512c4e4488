package adapter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/store"
)

// conversation makes the records that the proxy makes of a conversation.
type conversation struct {
	attempt  *agl.AttemptedRollout
	source   *rand.Rand
	builder  record.Builder
	turn     int
	messages []byte // of the next request, without the bracket at the end
	tokens   []byte // of its prompt, likewise
}

func newConversation(attempt *agl.AttemptedRollout) *conversation {
	return &conversation{attempt: attempt, source: rand.New(rand.NewPCG(1, 2)), messages: []byte("["), tokens: []byte("[")}
}

// say adds a message, and its tokens to the prompt.
func (c *conversation) say(role, text string, tokens []byte) {
	if c.turn++; len(c.messages) > 1 {
		c.messages, c.tokens = append(c.messages, ','), append(c.tokens, ',')
	}
	c.messages = fmt.Appendf(c.messages, `{"role":%q,"content":%q}`, role, text)
	c.tokens = append(c.tokens, tokens...)
}

func (c *conversation) words(n int) string {
	var text []byte
	for range n {
		text = fmt.Appendf(text, "w%d ", c.source.IntN(2000))
	}
	return string(text)
}

// ids returns n token ids, without brackets.
func (c *conversation) ids(n int) []byte {
	var list []byte
	for i := range n {
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Append(list, c.source.IntN(150_000))
	}
	return list
}

// call asks a question of 300 words and returns the spans of the call, with a reply of 100 tokens.
func (c *conversation) call(tb testing.TB) []agl.Span {
	tb.Helper()
	const replyTokens = 100
	c.say("user", c.words(300), c.ids(400))
	text, ids := c.words(replyTokens), c.ids(replyTokens)
	var logprobs []byte
	for i, word := range bytes.Fields([]byte(text)) {
		if i > 0 {
			logprobs = append(logprobs, ',')
		}
		logprobs = fmt.Appendf(logprobs, `{"token":%q,"logprob":%.6f,"bytes":null,"top_logprobs":[]}`, word, -c.source.ExpFloat64())
	}
	now := time.UnixMilli(1_700_000_000_000 + int64(c.turn))
	in := &record.Input{
		RolloutID: c.attempt.RolloutID, AttemptID: c.attempt.Attempt.AttemptID, Path: "/chat/completions", Method: http.MethodPost, Model: "m",
		Request: fmt.Appendf(nil, `{"model":"m","messages":%s],"temperature":1}`, c.messages),
		Reply: fmt.Appendf(nil, `{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":"m","prompt_token_ids":%s],"choices":[{"index":0,`+
			`"message":{"role":"assistant","content":%q},"finish_reason":"stop","logprobs":{"content":[%s]},"token_ids":[%s]}],`+
			`"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":2}}`, c.turn, c.tokens, text, logprobs, ids, replyTokens),
		Backend: "http://127.0.0.1:1/v1", Status: http.StatusOK, Delivered: true, Start: now, Sent: now, FirstByte: now, LastByte: now, End: now,
	}
	names := record.SpanIDs{Trace: fmt.Sprintf("%032x", c.turn)}
	for i := range names.Spans {
		names.Spans[i] = fmt.Sprintf("%08x%08x", c.turn, i)
	}
	_, made := c.builder.Append(nil, in, &record.Position{SequenceID: int64(c.turn), Name: fmt.Sprint(c.turn), IDs: names})
	spans := make([]agl.Span, 0, record.SpansPerCall)
	for _, document := range made.Spans {
		var s agl.Span
		if err := spanjson.Parse(document, &s); err != nil {
			tb.Fatal(err)
		}
		spans = append(spans, s)
	}
	c.say("assistant", text, ids)
	return spans
}

func openStore(tb testing.TB, dsn string) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), dsn, store.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close(tb.Context()) })
	return s
}

// BenchmarkConversation reads rollouts of 128 and of 512 turns from a store and merges their calls. Ratio is the time of the
// second over that of the first.
func BenchmarkConversation(b *testing.B) {
	for name, dsn := range map[string]string{"memory": "memory:", "sqlite": "sqlite:" + filepath.Join(b.TempDir(), "agl.db")} {
		s := openStore(b, dsn)
		var before float64
		for _, turns := range []int{128, 512} {
			r, err := s.StartRollout(b.Context(), agl.StartRolloutParams{})
			if err != nil {
				b.Fatal(err)
			}
			talk := newConversation(&r)
			for range turns {
				if _, err := s.AddSpans(b.Context(), agl.AddSpansParams{Spans: talk.call(b)}); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprint(name, "/", turns), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					trajectories := adapter.Trajectories{}
					spans, err := agl.QuerySpansFor(b.Context(), s, agl.QuerySpansParams{RolloutID: r.RolloutID}, trajectories)
					if err != nil {
						b.Fatal(err)
					}
					merged, err := agl.AdaptSpans(trajectories, spans)
					if err != nil || len(merged.Trajectories) != 1 || merged.Report.Calls != turns {
						b.Fatalf("%d calls, %d trajectories, error %v", merged.Report.Calls, len(merged.Trajectories), err)
					}
				}
				each := b.Elapsed().Seconds() / float64(b.N)
				if before > 0 {
					b.ReportMetric(each/before, "ratio")
				}
				before = each
			})
		}
	}
}
