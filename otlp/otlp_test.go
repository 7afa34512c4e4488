package otlp_test

import (
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/otlp"
)

// traces builds a request with one resource, and the span that fill fills.
func traces(t testing.TB, resource []attribute, fill func(ptrace.Span)) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	put(t, rs.Resource().Attributes(), resource)
	rs.SetSchemaUrl("https://example.org/schema")
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetTraceID(pcommon.TraceID{0xab, 15: 1})
	span.SetSpanID(pcommon.SpanID{7: 2})
	span.SetName("call")
	fill(span)
	return td
}

type attribute struct {
	key   string
	value any
}

func put(t testing.TB, m pcommon.Map, attributes []attribute) {
	t.Helper()
	for _, a := range attributes {
		if err := m.PutEmpty(a.key).FromRaw(a.value); err != nil {
			t.Fatal(err)
		}
	}
}

func ids(extra ...attribute) []attribute {
	return append([]attribute{{agl.AttrRolloutID, "ro-1"}, {agl.AttrAttemptID, "at-1"}}, extra...)
}

// encode gives the request in both encodings.
func encode(t testing.TB, td ptrace.Traces) map[otlp.Encoding][]byte {
	t.Helper()
	proto, err := new(ptrace.ProtoMarshaler).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	text, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return map[otlp.Encoding][]byte{otlp.Protobuf: proto, otlp.JSON: text}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	const resource = `"resource":{"attributes":{"agentlightning.rollout_id":"ro-1","agentlightning.attempt_id":"at-1"},"schema_url":"https://example.org/schema"}`
	span := func(sequence, parent, status, attributes, events, links, start, end string) string {
		return `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":` + sequence + `,"trace_id":"ab000000000000000000000000000001","span_id":"0000000000000002","parent_id":` + parent +
			`,"name":"call","status":` + status + `,"attributes":` + attributes + `,"events":[` + events + `],"links":[` + links + `],"start_time":` + start + `,"end_time":` + end +
			`,"context":{"trace_id":"ab000000000000000000000000000001","span_id":"0000000000000002","is_remote":false,"trace_state":{}},"parent":null,`
	}
	const unset = `{"status_code":"UNSET","description":null}`
	for _, tc := range []struct {
		name     string
		resource []attribute
		fill     func(ptrace.Span)
		want     string
	}{
		{"bare", ids(), func(ptrace.Span) {}, span("0", "null", unset, "{}", "", "", "null", "null")},
		{
			"times, parent and status", ids(),
			func(s ptrace.Span) {
				s.SetStartTimestamp(1760706315500000000)
				s.SetEndTimestamp(1760706316250000000)
				s.SetParentSpanID(pcommon.SpanID{0xff, 7: 9})
				s.Status().SetCode(ptrace.StatusCodeError)
				s.Status().SetMessage("boom")
			},
			span("0", `"ff00000000000009"`, `{"status_code":"ERROR","description":"boom"}`, "{}", "", "", "1760706315.5", "1760706316.25"),
		},
		{
			"values", ids(),
			func(s ptrace.Span) {
				a := s.Attributes()
				a.PutStr("s", "é\"")
				a.PutBool("b", true)
				a.PutInt("i", math.MaxInt64)
				a.PutDouble("one", 1)
				a.PutDouble("small", 1e-7)
				a.PutDouble("nan", math.NaN())
				a.PutDouble("inf", math.Inf(-1))
				a.PutEmptyBytes("raw").FromRaw([]byte{0xde, 0xad})
				a.PutEmpty("nothing")
				a.PutEmptySlice("none")
			},
			span("0", "null", unset, `{"s":"é\"","b":true,"i":9223372036854775807,"one":1.0,"small":1e-07,"nan":"NaN","inf":"-Infinity","raw":"dead","none":[]}`, "", "", "null", "null"),
		},
		{
			"lists and maps", ids(),
			func(s ptrace.Span) {
				put(t, s.Attributes(), []attribute{{"a", []any{int64(1), 2.5}}})
				m := s.Attributes().PutEmptyMap("m")
				m.PutStr("x", "1")
				m.PutEmptyMap("deep").PutInt("y", 2)
				mixed := s.Attributes().PutEmptySlice("mixed")
				mixed.AppendEmpty().SetInt(1)
				mixed.AppendEmpty().SetStr("a")
				mixed.AppendEmpty().SetEmptyMap().PutBool("z", false)
				holes := s.Attributes().PutEmptySlice("holes")
				holes.AppendEmpty().SetDouble(math.Inf(1))
				holes.AppendEmpty().SetDouble(2)
			},
			span("0", "null", unset, `{"a":[1,2.5],"m.x":"1","m.deep.y":2,"mixed.0":1,"mixed.1":"a","mixed.2.z":false,"holes.0":"Infinity","holes.1":2.0}`, "", "", "null", "null"),
		},
		{
			"events and links", ids(),
			func(s ptrace.Span) {
				e := s.Events().AppendEmpty()
				e.SetName("e")
				e.SetTimestamp(1500000000)
				e.Attributes().PutDouble("d", math.NaN())
				s.Events().AppendEmpty()
				l := s.Links().AppendEmpty()
				l.SetTraceID(pcommon.TraceID{15: 3})
				l.SetSpanID(pcommon.SpanID{7: 4})
				l.TraceState().FromRaw("x=y")
				s.Links().AppendEmpty().Attributes().PutStr("k", "v")
			},
			span("0", "null", unset, "{}",
				`{"name":"e","attributes":{"d":"NaN"},"timestamp":1.5},{"name":"","attributes":{},"timestamp":null}`,
				`{"context":{"trace_id":"00000000000000000000000000000003","span_id":"0000000000000004","is_remote":false,"trace_state":{}},"attributes":null},`+
					`{"context":{"trace_id":"00000000000000000000000000000000","span_id":"0000000000000000","is_remote":false,"trace_state":{}},"attributes":{"k":"v"}}`,
				"null", "null"),
		},
	} {
		for encoding, data := range encode(t, traces(t, tc.resource, tc.fill)) {
			t.Run(tc.name+" "+encoding.ContentType(), func(t *testing.T) {
				t.Parallel()
				batch, err := otlp.Decode(data, encoding)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch.Spans) != 1 || batch.Rejected != 0 {
					t.Fatalf("got %d spans, %d rejected: %s", len(batch.Spans), batch.Rejected, batch.Reason)
				}
				got := string(batch.Spans[0].AppendJSON(nil))
				if diff := cmp.Diff(tc.want+resource+"}", got); diff != "" {
					t.Errorf("span (-want +got):\n%s", diff)
				}
				var back agl.Span
				if err := rawjson.Unmarshal(batch.Spans[0].AppendJSON(nil), &back); err != nil {
					t.Errorf("the span cannot be read back: %v", err)
				}
			})
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		resource, span []attribute
		want           string // rollout/attempt/sequence, or empty if rejected
	}{
		{"of the resource", ids(attribute{agl.AttrSpanSequenceID, "7"}), nil, "ro-1/at-1/7"},
		{"of the span first", ids(attribute{agl.AttrSpanSequenceID, "7"}), []attribute{{agl.AttrRolloutID, "ro-2"}, {agl.AttrSpanSequenceID, int64(3)}}, "ro-2/at-1/3"},
		{"empty counts as absent", ids(), []attribute{{agl.AttrAttemptID, ""}}, "ro-1/at-1/0"},
		{"a number is an id", ids(), []attribute{{agl.AttrAttemptID, int64(5)}}, "ro-1/5/0"},
		{"bad sequence", ids(attribute{agl.AttrSpanSequenceID, "x"}), nil, "ro-1/at-1/0"},
		{"negative sequence", ids(), []attribute{{agl.AttrSpanSequenceID, int64(-4)}}, "ro-1/at-1/0"},
		{"no attempt", []attribute{{agl.AttrRolloutID, "ro-1"}}, nil, ""},
		{"empty everywhere", []attribute{{agl.AttrRolloutID, ""}, {agl.AttrAttemptID, ""}}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			td := traces(t, tc.resource, func(s ptrace.Span) {
				put(t, s.Attributes(), tc.span)
			})
			batch, err := otlp.Decode(encode(t, td)[otlp.Protobuf], otlp.Protobuf)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if len(batch.Spans) != 0 || batch.Rejected != 1 || !strings.Contains(batch.Reason, `"call"`) {
					t.Errorf("got %d spans, %d rejected: %s", len(batch.Spans), batch.Rejected, batch.Reason)
				}
				return
			}
			s := batch.Spans[0]
			got := s.RolloutID + "/" + s.AttemptID + "/" + string(rune('0'+s.SequenceID))
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDecodeGarbage(t *testing.T) {
	t.Parallel()
	if batch, err := otlp.Decode(nil, otlp.Protobuf); err != nil || len(batch.Spans) != 0 {
		t.Errorf("empty request: %v", err)
	}
	for encoding, data := range map[otlp.Encoding]string{otlp.Protobuf: "\x0a\xff", otlp.JSON: `{"resourceSpans":3`} {
		if _, err := otlp.Decode([]byte(data), encoding); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: error is %v, want invalid", encoding.ContentType(), err)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{"all stored", otlp.AppendResponse(nil, otlp.Protobuf, 0, ""), ""},
		{"all stored, JSON", otlp.AppendResponse(nil, otlp.JSON, 0, ""), "{}"},
		// ExportTraceServiceResponse{partial_success{rejected_spans: 3, error_message: "no"}}
		{"some rejected", otlp.AppendResponse(nil, otlp.Protobuf, 3, "no"), "\x0a\x06\x08\x03\x12\x02no"},
		{"some rejected, JSON", otlp.AppendResponse(nil, otlp.JSON, 3, "no"), `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}`},
		// google.rpc.Status{message: "no"}
		{"failed", otlp.AppendStatus(nil, otlp.Protobuf, "no"), "\x12\x02no"},
		{"failed, JSON", otlp.AppendStatus(nil, otlp.JSON, "no"), `{"message":"no"}`},
	} {
		if string(tc.got) != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, hex.EncodeToString(tc.got), hex.EncodeToString([]byte(tc.want)))
		}
	}
}

// A small request must not become a large one, nor exhaust the stack.
func TestBombs(t *testing.T) {
	t.Parallel()
	nested := func(levels int) func(ptrace.Span) {
		return func(s ptrace.Span) {
			list := s.Attributes().PutEmptySlice("l")
			for range levels - 1 {
				list = list.AppendEmpty().SetEmptySlice()
			}
			list.AppendEmpty().SetStr("x")
		}
	}
	long := strings.Repeat("n", 1<<20)
	for _, tc := range []struct {
		name     string
		resource []attribute
		fill     func(ptrace.Span)
		spans    int
		want     string // in the reason or the error, empty if all spans are accepted
	}{
		{"deep enough", ids(), nested(otlp.MaxDepth - 1), 1, ""},
		{"too deep", ids(), nested(100_000), 1, "nested deeper than 64 levels"},
		{"a long name of nested values", ids(), func(s ptrace.Span) {
			list := s.Attributes().PutEmptySlice(long)
			for range 5000 {
				list.AppendEmpty().SetEmptyMap().PutBool("b", true)
			}
		}, 1, "has an attribute with a name of 1048576 bytes, must be at most 4096"},
		{"many nested values", ids(), func(s ptrace.Span) {
			list := s.Attributes().PutEmptySlice(long[:4000])
			for range 5000 {
				list.AppendEmpty().SetEmptyMap().PutBool("b", true)
			}
		}, 1, "has attributes that make the request more than 16 times larger"},
		{"a large resource of many spans", append(ids(), attribute{"x", long}), func(ptrace.Span) {}, 5000, "has attributes that make the request more than 16 times larger"},
	} {
		td := traces(t, tc.resource, tc.fill)
		list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		for range tc.spans - 1 {
			list.AppendEmpty().SetName("another")
		}
		for encoding, data := range encode(t, td) {
			batch, err := otlp.Decode(data, encoding)
			got := batch.Reason
			if err != nil {
				got = err.Error()
			}
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%s, encoding %v: got %.200q, want %q", tc.name, encoding, got, tc.want)
			}
			if len(batch.Spans) > 30 {
				t.Errorf("%s, encoding %v: %d spans are accepted", tc.name, encoding, len(batch.Spans))
			}
		}
	}
}

// An empty message of two or three bytes takes some hundred once it is decoded.
func TestTooManyMessages(t *testing.T) {
	t.Parallel()
	type decode = func(data []byte, encoding otlp.Encoding) error
	traces := func(data []byte, encoding otlp.Encoding) error { _, err := otlp.Decode(data, encoding); return err }
	metrics := func(data []byte, encoding otlp.Encoding) error {
		_, err := otlp.DecodeMetrics(data, encoding)
		return err
	}
	const most = otlp.MaxMessages
	list := func(begin, element string, n int, end string) []byte {
		return []byte(begin + strings.Repeat(element+",", n-1) + element + end)
	}
	// in is a message with field numbers around the content of the last one.
	in := func(content string, numbers ...protowire.Number) []byte {
		data := []byte(content)
		for _, n := range slices.Backward(numbers) {
			data = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), data)
		}
		return data
	}
	for name, tc := range map[string]struct {
		decode
		encoding otlp.Encoding
		data     []byte
		accepted bool
	}{
		"as many resources as there may be": {traces, otlp.JSON, list(`{"resourceSpans":[`, "{}", most-2, "]}"), true},
		"too many resources":                {traces, otlp.JSON, list(`{"resourceSpans":[`, "{}", most-1, "]}"), false},
		"brackets in a text":                {traces, otlp.JSON, []byte(`{"resourceSpans":[{"schemaUrl":"` + strings.Repeat("{", most) + `"}]}`), true},
		"too many spans":                    {traces, otlp.JSON, list(`{"resourceSpans":[{"scopeSpans":[{"spans":[`, "{}", most, "]}]}]}"), false},
		"too many nulls":                    {traces, otlp.JSON, list(`{"resourceSpans":[{"scopeSpans":[{"spans":[`, "null", most+2, "]}]}]}"), false},
		"too many numbers":                  {metrics, otlp.JSON, list(`{"resourceMetrics":[{"resource":{"attributes":[`, "1", most+2, "]}}]}"), false},
		"too many metrics":                  {metrics, otlp.JSON, list(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[`, "{}", most, "]}]}]}"), false},
		"protobuf, resources, as many":      {traces, otlp.Protobuf, []byte(strings.Repeat("\n\x00", most)), true},
		"protobuf, resources":               {traces, otlp.Protobuf, []byte(strings.Repeat("\n\x00", most+1)), false},
		"protobuf, spans":                   {traces, otlp.Protobuf, in(strings.Repeat("\x12\x00", most), 1, 2), false},
		"protobuf, attributes":              {traces, otlp.Protobuf, in(strings.Repeat("\n\x00", most), 1, 1), false},
		"protobuf, entities":                {traces, otlp.Protobuf, in(strings.Repeat("\x1a\x00", most), 1, 1), false},
		"protobuf, points":                  {metrics, otlp.Protobuf, in(strings.Repeat("\n\x00", most), 1, 2, 2, 5), false},
		"protobuf, quantiles":               {metrics, otlp.Protobuf, in(strings.Repeat("2\x00", most), 1, 2, 2, 11, 1), false},
	} {
		err := tc.decode(tc.data, tc.encoding)
		if tc.accepted && err != nil || !tc.accepted && (!errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "more than 1048576 messages")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Exporters send 512 spans in a batch, the OpenTelemetry Collector 8192, and all spans of a process share its resource.
func TestSharedResource(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ spans, resource int }{{512, 2 << 10}, {512, 16 << 10}, {8192, 4 << 10}} {
		td := traces(t, append(ids(), attribute{"process.command_line", strings.Repeat("x", tc.resource-200)}), func(ptrace.Span) {})
		list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		for range tc.spans - 1 {
			list.AppendEmpty().SetName("tiny")
		}
		for encoding, data := range encode(t, td) {
			batch, err := otlp.Decode(data, encoding)
			if err != nil || len(batch.Spans) != tc.spans {
				t.Errorf("%+v, encoding %v: %d spans, %d rejected: %s, %v", tc, encoding, len(batch.Spans), batch.Rejected, batch.Reason, err)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	td := traces(f, ids(), func(s ptrace.Span) {
		s.Attributes().PutEmptySlice("l").AppendEmpty().SetEmptyMap().PutDouble("d", math.Inf(1))
		s.Events().AppendEmpty().SetName("e")
		s.Links().AppendEmpty()
	})
	f.Add(request(field(1, "short")), false)
	for encoding, data := range encode(f, td) {
		f.Add(data, encoding == otlp.JSON)
	}
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		encoding := otlp.Protobuf
		if text {
			encoding = otlp.JSON
		}
		batch, err := otlp.Decode(data, encoding)
		if err != nil {
			return
		}
		size := 0
		for _, span := range batch.Spans {
			doc := span.AppendJSON(nil)
			size += len(doc)
			var back agl.Span
			if err := rawjson.Unmarshal(doc, &back); err != nil {
				t.Fatalf("a span that was accepted cannot be read back: %v\n%s", err, doc)
			}
		}
		// Besides attributes, a span repeats a small resource, the ids of that, and its own.
		if most := (otlp.MaxGrowth+6)*len(data) + 8<<20 + len(batch.Spans)*(2<<10+otlp.MaxResource); size > most {
			t.Fatalf("%d bytes became %d bytes of spans, want at most %d", len(data), size, most)
		}
	})
}
