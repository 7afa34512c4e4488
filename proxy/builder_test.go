package proxy

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadIDs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]int32{
		`[1]`:                      {1},
		`[12,0,2147483647]`:        {12, 0, 2147483647},
		"[ 1 ,\n\t-2\r, 30 ]":      {1, -2, 30},
		`[ ]`:                      {},
		`[]`:                       nil,
		`"12"`:                     nil,
		`[1,"2"]`:                  nil,
		`[1.5]`:                    nil,
		`[1e3]`:                    nil,
		`[1,null]`:                 nil,
		`[[1]]`:                    nil,
		`[2147483648]`:             nil,
		`[1,99999999999999999999]`: nil,
	} {
		if diff := cmp.Diff(want, readIDs([]byte(raw))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

// BenchmarkRecord builds the record of one small call with token ids and log-probabilities.
func BenchmarkRecord(b *testing.B) {
	const token = `{"token":"a","logprob":-0.25,"bytes":[97],"top_logprobs":[]}`
	tokens := strings.TrimSuffix(strings.Repeat(token+",", 12), ",")
	reply := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"policy","choices":[{"index":0,"message":{"role":"assistant","content":"call 12*7","refusal":null},` +
		`"logprobs":{"content":[` + tokens + `],"refusal":null},"finish_reason":"stop","token_ids":[11,24,29,0,2,11,24,29,0,2,7,47]}],"usage":{"prompt_tokens":12,"completion_tokens":12,"total_tokens":24},` +
		`"system_fingerprint":"v1","prompt_token_ids":[44,2,3,0,30,19,23,15,29,0,8,45]}`)
	ledger := newLedger()
	builder := newBuilder(ledger)
	now := time.Now()
	c := &call{
		route: route{rolloutID: "r", attemptID: "a", path: "/chat/completions"}, method: http.MethodPost, model: "policy",
		request: []byte(`{"model":"policy","messages":[{"role":"user","content":"12 times 7"}],"temperature":1,"max_tokens":16}`),
		reply:   reply, backend: &backend{base: &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/v1"}},
		status: http.StatusOK, delivered: true, start: now, sent: now, firstByte: now, lastByte: now, end: now,
	}
	ledger.begin(c, true)
	b.ReportAllocs()
	var record []byte
	for b.Loop() {
		clear(c.attempt.seen)
		if record = builder.build(record[:0], c); len(c.spans) != spansPerCall {
			b.Fatalf("%d spans", len(c.spans))
		}
	}
}
