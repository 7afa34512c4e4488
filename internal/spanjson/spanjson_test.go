package spanjson_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spanjson"
)

// spanSeeds are documents on both sides of the usual form.
var spanSeeds = []string{
	`{"rollout_id":"ro","attempt_id":"at","sequence_id":3,"trace_id":"t","span_id":"s","parent_id":null,"name":"n","status":{"status_code":"OK","description":null},"attributes":{"a":1.0,"l":[1,2.5],"b":true},"events":[],"links":[],"start_time":1.5,"end_time":null,"context":{"trace_id":"t","span_id":"s","is_remote":false,"trace_state":{}},"parent":null,"resource":{"attributes":{},"schema_url":""}}`,
	` { "rollout_id" : "ro" , "attempt_id":"at","sequence_id":"3","trace_id":"t","span_id":"s","parent_id":"p","name":"n\u00e9","status":{"status_code":"ERROR","description":"d"},"attributes":{},"events":[],"links":[],"start_time":"1.5","end_time":2,"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""}}`,
	`{"rollout_id":"ro","attempt_id":"at","sequence_id":1.0,"trace_id":"t","span_id":"s","parent_id":null,"name":"n","status":{"status_code":"OK"},"attributes":{"a":null},"events":[{"name":"e","attributes":{}}],"links":[],"start_time":1e3,"end_time":null,"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""},"extra":1}`,
	`{"rollout_id":"ro","rollout_id":"twice","attempt_id":"at","sequence_id":1,"trace_id":"t","span_id":"s","parent_id":null,"name":"n","status":{"status_code":"BAD"},"attributes":{},"events":[],"links":[],"start_time":1e999,"end_time":null,"context":{},"parent":null,"resource":{}}`,
	`{"rollout_id":5}`,
	`{}`,
}

// The decoder of the usual form and the one that explains give the same span, or
// both an error.
func FuzzSpanDecoders(f *testing.F) {
	for _, seed := range spanSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		value := jsontext.Value(doc)
		if !value.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || value.Kind() != '{' {
			return
		}
		var slow, fast agl.Span
		slowErr := slow.UnmarshalJSONFrom(rawjson.NewDecoder(bytes.Clone(doc)))
		fastErr := spanjson.Read(rawjson.NewDecoder(doc), doc, &fast)
		if (slowErr == nil) != (fastErr == nil) {
			t.Fatalf("one decoder says %v, the other %v", slowErr, fastErr)
		}
		if slowErr != nil {
			if diff := cmp.Diff(slowErr.Error(), fastErr.Error()); diff != "" {
				t.Fatal(diff)
			}
			return
		}
		if diff := cmp.Diff(string(slow.AppendJSON(nil)), string(fast.AppendJSON(nil))); diff != "" {
			t.Fatal(diff)
		}
		var stored agl.Span
		written := fast.AppendJSON(nil)
		if err := spanjson.Parse(written, &stored); err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, written)
		}
		if again := stored.AppendJSON(nil); !bytes.Equal(written, again) {
			t.Fatalf("written %s\nread    %s", written, again)
		}
		apart := spanjson.Append([]byte("before"), &stored, func(dst []byte) []byte {
			if stored.Attributes == nil {
				return append(dst, "{}"...)
			}
			return append(dst, stored.Attributes...)
		})
		if want := append([]byte("before"), written...); !bytes.Equal(want, apart) {
			t.Fatalf("written with a function %s\nwant %s", apart, want)
		}
	})
}

// benchSpan is a typical span of 1.5 KB.
func benchSpan() []byte {
	return []byte(`{"rollout_id":"ro-b66f639043f4","attempt_id":"at-1a0ee58d","sequence_id":3,"trace_id":"0af7651916cd43dd8448eb211c80319c",` +
		`"span_id":"b7ad6b7169203331","parent_id":"00f067aa0ba902b7","name":"openai.chat.completion","status":{"status_code":"OK","description":null},` +
		`"attributes":{"gen_ai.request.model":"policy","gen_ai.usage.input_tokens":12,"gen_ai.usage.output_tokens":34,"ids":[1,2,3,4],` +
		`"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"` + strings.Repeat("words of a prompt ", 40) + `"},"events":[],"links":[],` +
		`"start_time":1760706315.5,"end_time":1760706316.25,"context":{"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331",` +
		`"is_remote":false,"trace_state":{}},"parent":null,"resource":{"attributes":{"service.name":"bench"},"schema_url":""}}`)
}

func BenchmarkSpanParse(b *testing.B) {
	doc := benchSpan()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	var s agl.Span
	for b.Loop() {
		if err := spanjson.Parse(doc, &s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSpanRead(b *testing.B) {
	doc := benchSpan()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	var s agl.Span
	for b.Loop() {
		if err := spanjson.Read(rawjson.NewDecoder(doc), doc, &s); err != nil {
			b.Fatal(err)
		}
	}
}
