package agl_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// benchSpan is a typical span of 1.5 KB.
func benchSpan() []byte {
	return []byte(`{"rollout_id":"ro-b66f639043f4","attempt_id":"at-1a0ee58d","sequence_id":3,"trace_id":"0af7651916cd43dd8448eb211c80319c",` +
		`"span_id":"b7ad6b7169203331","parent_id":"00f067aa0ba902b7","name":"openai.chat.completion","status":{"status_code":"OK","description":null},` +
		`"attributes":{"gen_ai.request.model":"policy","gen_ai.usage.input_tokens":12,"gen_ai.usage.output_tokens":34,"ids":[1,2,3,4],` +
		`"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"` + strings.Repeat("words of a prompt ", 40) + `"},"events":[],"links":[],` +
		`"start_time":1760706315.5,"end_time":1760706316.25,"context":{"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331",` +
		`"is_remote":false,"trace_state":{}},"parent":null,"resource":{"attributes":{"service.name":"bench"},"schema_url":""}}`)
}

func BenchmarkSpanDecode(b *testing.B) {
	doc := benchSpan()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		var s agl.Span
		if err := rawjson.Unmarshal(doc, &s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSpanAppend(b *testing.B) {
	doc := benchSpan()
	var s agl.Span
	if err := rawjson.Unmarshal(doc, &s); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		buf = s.AppendJSON(buf[:0])
	}
	if !bytes.Equal(buf, doc) {
		b.Fatal("span changed")
	}
}
