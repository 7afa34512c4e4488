package server_test

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// export builds a request with one span for each rollout/attempt pair.
func export(t *testing.T, attempts ...[2]string) string {
	t.Helper()
	td := ptrace.NewTraces()
	for i, ids := range attempts {
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr(agl.AttrRolloutID, ids[0])
		rs.Resource().Attributes().PutStr(agl.AttrAttemptID, ids[1])
		span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetName("call")
		span.SetSpanID(pcommon.SpanID{7: byte(i + 1)})
	}
	data, err := new(ptrace.ProtoMarshaler).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTraces(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine})
	started, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	known := [2]string{started.RolloutID, started.Attempt.AttemptID}
	const protobuf = "application/x-protobuf"

	if w := ask(t, api, "POST", "/v1/traces", export(t, known, [2]string{"ro-nope", "at-nope"}, [2]string{"", ""}), "Content-Type", protobuf+"; charset=x"); true {
		partial := partialSuccess(t, w.Body.Bytes())
		if w.Code != 200 || w.Header().Get("Content-Type") != protobuf || !strings.HasPrefix(partial, "2 ") {
			t.Errorf("some known: %d %q", w.Code, partial)
		}
	}
	if w := ask(t, api, "POST", "/v1/traces", export(t, known), "Content-Type", protobuf); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("a repeat: %d %q", w.Code, w.Body)
	}
	spans, err := engine.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: known[0]})
	if err != nil || len(spans.Items) != 1 || spans.Items[0].SequenceID != 1 {
		t.Errorf("stored %+v, %v", spans.Items, err)
	}

	for _, tc := range []struct {
		name, contentType, body string
		header                  []string
		status                  int
		answerType, want        string
	}{
		{"empty", protobuf, "", nil, 200, protobuf, ""},
		{"type in capitals", "Application/X-Protobuf; charset=x", "", nil, 200, protobuf, ""},
		{"other type", "text/plain", "x", nil, 400, protobuf, "Unsupported Content-Type 'text/plain', expected 'application/x-protobuf'"},
		{"no type", "", "x", nil, 400, protobuf, "Unsupported Content-Type ''"},
		{"garbage", protobuf, "\x0a\xff", nil, 400, protobuf, "Unable to parse OTLP traces payload: "},
		{"garbage in JSON", "application/json", "{", nil, 400, "application/json", `{"message":"Unable to parse OTLP traces payload: `},
		{"bad gzip", protobuf, "x", []string{"Content-Encoding", "gzip"}, 400, protobuf, "not gzip"},
		{"all unknown in JSON", "application/json", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"lost"}]}]}]}`, nil, 200, "application/json", `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"span \"lost\" has no `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := ask(t, api, "POST", "/v1/traces", tc.body, append(tc.header, "Content-Type", tc.contentType)...)
			if w.Code != tc.status || w.Header().Get("Content-Type") != tc.answerType || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s %q", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			// The same again, compressed.
			w = ask(t, api, "POST", "/v1/traces", tc.body, append(tc.header, "Content-Type", tc.contentType, "Accept-Encoding", "gzip;q=0, deflate")...)
			z, err := gzip.NewReader(w.Body)
			if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
				t.Fatalf("compressed answer: %v, %v", err, w.Header())
			}
			if got := readAll(t, z); !strings.Contains(got, tc.want) {
				t.Errorf("compressed answer is %q", got)
			}
		})
	}
	if _, err := engine.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: known[0]}); err != nil {
		t.Fatal(err)
	}
	if w := ask(t, api, "POST", "/v1/traces", export(t, known), "Content-Type", protobuf); w.Header().Get("Agl-Attempt-State") != "cancelled" {
		t.Errorf("an export for a cancelled attempt has headers %v", w.Header())
	}
}

// partialSuccess reads "N message" out of an ExportTraceServiceResponse.
func partialSuccess(t *testing.T, data []byte) string {
	t.Helper()
	number, kind, n := protowire.ConsumeTag(data)
	if number != 1 || kind != protowire.BytesType {
		t.Fatalf("no partial success in %q", data)
	}
	partial, _ := protowire.ConsumeBytes(data[n:])
	_, _, n = protowire.ConsumeTag(partial)
	rejected, m := protowire.ConsumeVarint(partial[n:])
	partial = partial[n+m:]
	_, _, n = protowire.ConsumeTag(partial)
	message, _ := protowire.ConsumeString(partial[n:])
	return string(rune('0'+rejected)) + " " + message
}

// A span that a store would refuse is repaired, so that it does not cost the other spans of its attempt.
func TestTracesRepaired(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(ptrace.ResourceSpans, ptrace.Span){
		"name":        func(_ ptrace.ResourceSpans, s ptrace.Span) { s.SetName("a\xff") },
		"message":     func(_ ptrace.ResourceSpans, s ptrace.Span) { s.Status().SetMessage("a\xff") },
		"event":       func(_ ptrace.ResourceSpans, s ptrace.Span) { s.Events().AppendEmpty().SetName("a\xff") },
		"attribute":   func(_ ptrace.ResourceSpans, s ptrace.Span) { s.Attributes().PutStr("a\xff", "a\xff") },
		"schema":      func(r ptrace.ResourceSpans, _ ptrace.Span) { r.SetSchemaUrl("a\xff") },
		"sequence id": func(_ ptrace.ResourceSpans, s ptrace.Span) { s.Attributes().PutInt(agl.AttrSpanSequenceID, 1<<53) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := memorytest.Open(t)
			api := newServer(t, server.Config{Store: engine})
			started, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{})
			if err != nil {
				t.Fatal(err)
			}
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr(agl.AttrRolloutID, started.RolloutID)
			rs.Resource().Attributes().PutStr(agl.AttrAttemptID, started.Attempt.AttemptID)
			spans := rs.ScopeSpans().AppendEmpty().Spans()
			for i := range 2 {
				spans.AppendEmpty().SetSpanID(pcommon.SpanID{7: byte(i + 1)})
			}
			spoil(rs, spans.At(0))
			data, err := new(ptrace.ProtoMarshaler).MarshalTraces(td)
			if err != nil {
				t.Fatal(err)
			}
			w := ask(t, api, "POST", "/v1/traces", string(data), "Content-Type", "application/x-protobuf")
			stored, err := engine.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: started.RolloutID})
			if w.Code != 200 || w.Body.Len() != 0 || err != nil || len(stored.Items) != 2 || stored.Items[1].SequenceID != 2 {
				t.Errorf("got %d %q, stored %+v, %v, want both spans", w.Code, w.Body, stored.Items, err)
			}
		})
	}
}

func TestTracesStoreFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		status int
		want   string
	}{
		{agl.Errorf(agl.CodeUnavailable, "away"), 503, "away"},
		{agl.Errorf(agl.CodeExhausted, "full"), 507, "full"},
		{context.DeadlineExceeded, 503, "gave up the operation"},
		{secretError{}, 500, "Internal server error"},
	} {
		api := newServer(t, server.Config{Store: &stubStore{addSpan: func(context.Context, agl.AddSpansParams) (agl.AddSpansResult, error) {
			return agl.AddSpansResult{}, tc.err
		}}})
		w := ask(t, api, "POST", "/v1/traces", export(t, [2]string{"ro-1", "at-1"}), "Content-Type", "application/x-protobuf")
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: got %d %q", tc.err, w.Code, w.Body)
		}
	}
}

type secretError struct{}

func (secretError) Error() string { return "secret" }

// TestSpanToken sends spans with a token that is worth one attempt.
func TestSpanToken(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine, Token: "s3cret"})
	start := func() [2]string {
		t.Helper()
		r, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		return [2]string{r.RolloutID, r.Attempt.AttemptID}
	}
	mine, other := start(), start()
	soon := time.Now().Add(time.Hour)
	token := client.SpanToken("s3cret", mine[0], mine[1], soon)
	for _, tc := range []struct {
		name, path, token string
		spans             [][2]string
		status            int
	}{
		{"its own spans", "/v1/traces", token, [][2]string{mine}, 200},
		{"another's spans", "/v1/traces", token, [][2]string{other}, 401},
		{"another's among its own", "/v1/traces", token, [][2]string{mine, other}, 401},
		{"elsewhere", "/v1/agl/spans", token, [][2]string{mine}, 401},
		{"of another store", "/v1/traces", client.SpanToken("other", mine[0], mine[1], soon), [][2]string{mine}, 401},
		{"expired", "/v1/traces", client.SpanToken("s3cret", mine[0], mine[1], time.Now().Add(-time.Second)), [][2]string{mine}, 401},
		{"a run's key", "/v1/traces", runkey.New("s3cret", soon), [][2]string{mine}, 401},
		{"the store's token", "/v1/traces", "s3cret", [][2]string{mine, other}, 200},
	} {
		w := ask(t, api, "POST", tc.path, export(t, tc.spans...), "Content-Type", "application/x-protobuf", "Authorization", "Bearer "+tc.token)
		if w.Code != tc.status {
			t.Errorf("%s: %d, want %d: %s", tc.name, w.Code, tc.status, w.Body)
		}
	}
	if w := ask(t, api, "GET", "/v1/traces", "", "Authorization", "Bearer "+token); w.Code != 401 {
		t.Errorf("another method: %d, want 401", w.Code)
	}
	stranger := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/traces", nil)
	stranger.Body = unread{t}
	stranger.Header.Set("Authorization", "Bearer agl-run-x")
	w := httptest.NewRecorder()
	if api.ServeHTTP(w, stranger); w.Code != 401 {
		t.Errorf("a stranger: %d, want 401", w.Code)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a stranger's request is read")
	return 0, io.EOF
}

func (unread) Close() error { return nil }

// Spans from the store's own machine are ordered by their times, which are by its clock.
func TestTracesOfThisMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, remote string
		header       []string
		want         bool
	}{
		{"loopback", "127.0.0.1:1234", nil, true},
		{"loopback in IPv6", "[::1]:1234", nil, true},
		{"the machine's own address", "10.0.0.1:1234", nil, true},
		{"elsewhere", "10.0.0.2:1234", nil, false},
		{"through a proxy on this machine", "127.0.0.1:1234", []string{"X-Forwarded-For", "10.0.0.2"}, false},
		{"no address", "@", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got agl.AddSpansParams
			api := newServer(t, server.Config{Store: &stubStore{addSpan: func(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
				got = p
				return agl.AddSpansResult{Stored: p.Spans}, nil
			}}})
			local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4747}
			ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, local)
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/traces", strings.NewReader(export(t, [2]string{"ro-1", "at-1"})))
			r.Header.Set("Content-Type", "application/x-protobuf")
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			r.RemoteAddr = tt.remote
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != http.StatusOK || !got.IssueSequenceIDs || got.OrderByTime != tt.want {
				t.Errorf("got %d and %+v, want OrderByTime %t", w.Code, got, tt.want)
			}
		})
	}
}

// The spans of a batch from this machine get their ids in the order of their ends, if all have one.
func TestTracesAreOrdered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends []int64 // seconds; 0 is none
		want []string
	}{
		"by their ends":   {[]int64{30, 10, 20}, []string{"1", "2", "0"}},
		"as they come in": {[]int64{30, 0, 20}, []string{"0", "1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			api := newServer(t, server.Config{Store: &stubStore{addSpan: func(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
				for _, s := range p.Spans {
					got = append(got, s.Name)
				}
				return agl.AddSpansResult{Stored: p.Spans}, nil
			}}})
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr(agl.AttrRolloutID, "ro-1")
			rs.Resource().Attributes().PutStr(agl.AttrAttemptID, "at-1")
			for i, end := range tt.ends {
				span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
				span.SetName(strconv.Itoa(i))
				span.SetSpanID(pcommon.SpanID{7: byte(i + 1)})
				span.SetEndTimestamp(pcommon.Timestamp(end * 1_000_000_000))
			}
			data, err := new(ptrace.ProtoMarshaler).MarshalTraces(td)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/traces", strings.NewReader(string(data)))
			r.Header.Set("Content-Type", "application/x-protobuf")
			r.RemoteAddr = "127.0.0.1:1234"
			w := httptest.NewRecorder()
			if api.ServeHTTP(w, r); w.Code != http.StatusOK || !slices.Equal(got, tt.want) {
				t.Errorf("got %d and the order %v, want %v", w.Code, got, tt.want)
			}
		})
	}
}
