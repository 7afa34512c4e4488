package agl

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
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
// the same error.
func FuzzSpanDecoders(f *testing.F) {
	for _, seed := range spanSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		value := jsontext.Value(doc)
		if !value.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || value.Kind() != '{' {
			return
		}
		var slow, fast Span
		slowErr := slow.decode(jsontext.NewDecoder(bytes.NewBuffer(bytes.Clone(doc)), JSONOptions()))
		fastErr := DecodeJSON(doc, &fast)
		if (slowErr == nil) != (fastErr == nil) {
			t.Fatalf("one decoder says %v, the other %v", slowErr, fastErr)
		}
		if slowErr != nil {
			return
		}
		if diff := cmp.Diff(string(slow.AppendJSON(nil)), string(fast.AppendJSON(nil))); diff != "" {
			t.Fatal(diff)
		}
		var shared Span
		if err := shared.UnmarshalShared(jsontext.NewDecoder(bytes.NewBuffer(doc), JSONOptions()), doc); err != nil {
			t.Fatalf("not without a copy: %v", err)
		}
		if diff := cmp.Diff(string(slow.AppendJSON(nil)), string(shared.AppendJSON(nil))); diff != "" {
			t.Fatal(diff)
		}
		var stored Span
		written := fast.AppendJSON(nil)
		if err := stored.ParseStored(written); err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, written)
		}
		if again := stored.AppendJSON(nil); !bytes.Equal(written, again) {
			t.Fatalf("written %s\nread    %s", written, again)
		}
	})
}
