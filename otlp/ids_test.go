package otlp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/otlp"
)

// field is a length-delimited protobuf field.
func field(number protowire.Number, parts ...string) string {
	value := strings.Join(parts, "")
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

// request is an export request with the spans, which belong to an attempt.
func request(spans ...string) []byte {
	attribute := func(key, value string) string { return field(1, field(1, key), field(2, field(1, value))) }
	resource := field(1, attribute(agl.AttrRolloutID, "ro-1"), attribute(agl.AttrAttemptID, "at-1"))
	fields := make([]string, 0, len(spans))
	for _, s := range spans {
		fields = append(fields, field(2, s))
	}
	return []byte(field(1, resource, field(2, fields...)))
}

func TestIDsOfAnotherSize(t *testing.T) {
	t.Parallel()
	name := func(s string) string { return field(5, s) }
	full := name("full") + field(1, strings.Repeat("\x0a", 16)) + field(2, strings.Repeat("\x0b", 8))
	short := name("short") + field(1, "\x01\x02") + field(2, "\x03") + field(4, "\x04\x05") + field(13, field(1, "\x06")+field(2, "\x07"))
	long := name("long") + field(1, strings.Repeat("\x0a", 17)) + field(2, "\x03")
	longLink := name("long link") + field(1, "\x01") + field(2, "\x02") + field(13, field(2, strings.Repeat("\x07", 9)))

	batch, err := otlp.Decode(request(full, short, long, longLink), otlp.Protobuf)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(batch.Spans))
	for i := range batch.Spans {
		names = append(names, batch.Spans[i].Name)
	}
	if want := []string{"full", "short"}; !slices.Equal(names, want) {
		t.Fatalf("spans are %q, want %q", names, want)
	}
	got := batch.Spans[1]
	ids := []string{got.TraceID, got.SpanID, got.ParentID.V, got.Links[0].Context.TraceID, got.Links[0].Context.SpanID}
	want := []string{"00000000000000000000000000000102", "0000000000000003", "0000000000000405", "00000000000000000000000000000006", "0000000000000007"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("padded ids (-want +got):\n%s", diff)
	}
	if batch.Rejected != 2 || !strings.Contains(batch.Reason, `span "long" has an id of 17 bytes`) {
		t.Errorf("%d rejected because %q, want 2 because of the id of 17 bytes", batch.Rejected, batch.Reason)
	}
	if got, want := batch.Spans[0].TraceID, strings.Repeat("0a", 16); got != want {
		t.Errorf("a whole trace id is %s, want %s", got, want)
	}
}
