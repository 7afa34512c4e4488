package otlp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/otlp"
)

// jsonRequest is an export request in JSON whose spans belong to an attempt.
func jsonRequest(spans ...string) string {
	const attribute = `{"key":%q,"value":{"stringValue":%q}}`
	resource := fmt.Sprintf(attribute+","+attribute, agl.AttrRolloutID, "ro-1", agl.AttrAttemptID, "at-1")
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[%s]},"schemaUrl":"u","scopeSpans":[{"spans":[%s]}]}]}`, resource, strings.Join(spans, ","))
}

func TestBadSpanInJSON(t *testing.T) {
	t.Parallel()
	const ids = `"traceId":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a","spanId":"0b0b0b0b0b0b0b0b"`
	data := jsonRequest(`{"name":"short","spanId":"0b"}`, `{"name":"good",`+ids+`}`, `{"name":"fraction",`+ids+`,"attributes":[{"key":"k","value":{"intValue":1.5}}]}`, `3`)
	batch, err := otlp.Decode([]byte(data), otlp.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if len(batch.Spans) != 1 || batch.Spans[0].Name != "good" || batch.Spans[0].RolloutID != "ro-1" || batch.Spans[0].Resource.SchemaURL != "u" {
		t.Errorf("spans are %+v, want the good one with its resource", batch.Spans)
	}
	if batch.Rejected != 3 || !strings.HasPrefix(batch.Reason, `span "short" cannot be decoded`) {
		t.Errorf("%d rejected because %q, want 3 because of the short id", batch.Rejected, batch.Reason)
	}
}

// A file with a document in each line has more than one.
func TestTextBehindJSON(t *testing.T) {
	t.Parallel()
	for i, behind := range []string{"", " \r\n\t", "\n" + jsonRequest(), "x", "}"} {
		var want error
		if i > 1 {
			want = agl.ErrInvalid
		}
		if _, err := otlp.Decode([]byte(jsonRequest()+behind), otlp.JSON); !errors.Is(err, want) {
			t.Errorf("spans, then %q: %v, want %v", behind, err, want)
		}
		if _, err := otlp.DecodeMetrics([]byte(`{"resourceMetrics":[]}`+behind), otlp.JSON); !errors.Is(err, want) {
			t.Errorf("metrics, then %q: %v, want %v", behind, err, want)
		}
	}
}
