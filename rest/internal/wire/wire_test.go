package wire_test

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// filled returns a value of a type whose fields are all set, none to a zero value.
func filled[T any](t *testing.T) *T {
	t.Helper()
	v := new(T)
	fill(t, reflect.ValueOf(v).Elem(), "V")
	return v
}

func fill(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch known := v.Addr().Interface().(type) {
	case *jsontext.Value:
		*known = jsontext.Value(`{"a": 1.0}`)
		return
	case *agl.RolloutStatus:
		*known = agl.RolloutRunning
		return
	case *agl.AttemptStatus:
		*known = agl.AttemptRunning
		return
	case *agl.WorkerStatus:
		*known = agl.WorkerBusy
		return
	case *agl.Mode:
		*known = agl.ModeVal
		return
	case *agl.SortOrder:
		*known = agl.Descending
		return
	case *agl.FilterLogic:
		*known = agl.FilterOr
		return
	case *time.Duration:
		*known = 1500 * time.Millisecond
		return
	case *agl.RolloutConfig:
		*known = agl.RolloutConfig{MaxAttempts: 3}
		return
	case *agl.Null[agl.RolloutConfig]:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(name + ` "é/`)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), v.Type().Field(i).Name)
		}
	default:
		t.Fatalf("%s: %s is unknown", name, v.Type())
	}
}

// agree checks that an envelope reads what it has written. Fields of the path and
// of headers are not part of it.
func agree[T any](t *testing.T, envelope func(p *T) wire.Envelope, elsewhere ...string) {
	t.Helper()
	t.Run(strings.TrimPrefix(reflect.TypeFor[T]().String(), "agl."), func(t *testing.T) {
		t.Parallel()
		for _, sent := range []*T{filled[T](t), new(T)} {
			body := envelope(sent).AppendJSON(nil)
			var got T
			if err := new(wire.Decoder).Decode(body, envelope(&got)); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			ignore := cmpopts.IgnoreFields(*new(T), elsewhere...)
			if diff := cmp.Diff(*sent, got, ignore, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s is read differently (-sent +read):\n%s", body, diff)
			}
		}
	})
}

func TestEnvelopesAgree(t *testing.T) {
	t.Parallel()
	agree(t, wire.EnqueueRollouts, "IdempotencyKey")
	agree(t, wire.DequeueRollouts, "IdempotencyKey")
	agree(t, wire.ReturnClaims)
	agree(t, wire.WaitForRollouts)
	agree(t, wire.StartAttempt, "RolloutID", "IdempotencyKey")
	agree(t, wire.UpdateRollout, "RolloutID")
	agree(t, wire.UpdateAttempt, "RolloutID", "AttemptID")
	agree(t, wire.UpdateWorker, "WorkerID")
	agree(t, wire.ReserveSequenceIDs)
}

func TestStartRollout(t *testing.T) {
	t.Parallel()
	sent := agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`{"a": 1.0}`), Mode: agl.ModeTrain}, WorkerID: agl.Some("w")}
	var got agl.StartRolloutParams
	body := wire.StartRollout(&sent).AppendJSON(nil)
	if err := new(wire.Decoder).Decode(body, wire.StartRollout(&got)); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if got.WorkerID != sent.WorkerID || string(got.Input) != string(sent.Input) || got.Mode != sent.Mode {
		t.Errorf("%s is read as %+v", body, got)
	}
}

// Every parameter of a query arrives, by a body and by a query string.
func TestQueriesAgree(t *testing.T) {
	t.Parallel()
	agreeQuery(t, wire.QueryRollouts)
	agreeQuery(t, wire.QueryAttempts, "RolloutID")
	agreeQuery(t, wire.QueryResources)
	agreeQuery(t, wire.QueryWorkers)
	agreeQuery(t, wire.QuerySpans)
}

func agreeQuery[T any](t *testing.T, query func(p *T) wire.Query, elsewhere ...string) {
	t.Helper()
	t.Run(strings.TrimPrefix(reflect.TypeFor[T]().String(), "agl."), func(t *testing.T) {
		t.Parallel()
		sent := filled[T](t)
		ignore := cmpopts.IgnoreFields(*new(T), elsewhere...)
		var d wire.Decoder
		var got T
		if err := d.Decode(query(sent).AppendJSON(nil), query(&got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*sent, got, ignore); diff != "" {
			t.Errorf("the body is read differently (-sent +read):\n%s", diff)
		}
		got = *new(T)
		if err := query(&got).Parse(query(sent).Encode(), &d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*sent, got, ignore); diff != "" {
			t.Errorf("%s is read differently (-sent +read):\n%s", query(sent).Encode(), diff)
		}
	})
}

// A list that is empty matches nothing; one that is absent does not filter.
func TestEmptyFilters(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{`{}`: nil, `{"rollout_id_in":null}`: nil, `{"rollout_id_in":[]}`: {}} {
		var p agl.QueryRolloutsParams
		if err := new(wire.Decoder).Decode([]byte(body), wire.QueryRollouts(&p)); err != nil {
			t.Fatal(err)
		}
		if (p.RolloutIDIn == nil) != (want == nil) || p.Limit != -1 {
			t.Errorf("%s is read as %+v", body, p)
		}
	}
	p := agl.QueryRolloutsParams{RolloutIDIn: []string{}}
	if body := string(wire.QueryRollouts(&p).AppendJSON(nil)); !strings.Contains(body, `"rollout_id_in":[]`) {
		t.Errorf("an empty list is written as %s", body)
	}
}

// Errors keep their code and their words on the way.
func TestErrorsAgree(t *testing.T) {
	t.Parallel()
	for _, code := range []agl.Code{
		agl.CodeInvalid, agl.CodeNotFound, agl.CodeIllegalState, agl.CodeConflict, agl.CodeEvicted, agl.CodeExhausted,
		agl.CodeUnavailable, agl.CodeUnauthorized, agl.CodeUnimplemented,
	} {
		status, _ := wire.StatusOf(code)
		got := wire.DecodeError("Op", status, wire.AppendError(nil, agl.Errorf(code, "the words")))
		if agl.ErrorCode(got) != code || !strings.Contains(got.Error(), "the words") {
			t.Errorf("%s arrives as %s: %v", code, agl.ErrorCode(got), got)
		}
	}
}

// Answers without a code of ours, such as those of a Python server.
func TestForeignErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		body   string
		code   agl.Code
		want   string
	}{
		{404, `{"detail":"Not Found"}`, agl.CodeUnimplemented, "Op: the store's server answered 404 Not Found: it does not have this request; it may be older"},
		{404, `{"error":{"message":"no such route"}}`, agl.CodeUnimplemented, `404 Not Found: this is not the answer of a store, check its address: {"error"`},
		{501, ``, agl.CodeUnimplemented, "501 Not Implemented: this is not the answer of a store, check its address"},
		{400, `{"detail":"Spans for rollout x have been evicted","error_type":"RuntimeError"}`, agl.CodeEvicted, "have been evicted"},
		{422, `{"detail":[{"type":"missing","loc":["body","rollouts",0,"input"],"msg":"Field required","input":{}}]}`, agl.CodeInvalid, "body.rollouts.0.input: Field required"},
		{422, `{"detail":[{"type":"int_parsing","loc":["query","limit"],"msg":"no","input":"x"}]}`, agl.CodeInvalid, `query.limit: no, got "x"`},
		{503, `{"status":"unavailable","reason":"exhausted"}`, agl.CodeExhausted, "503 Service Unavailable"},
		{502, `<html>bad gateway</html>`, agl.CodeUnavailable, "bad gateway"},
		{413, "<html>\r\n<head><title>413</title></head>\r\n<body>\r\n<h1>Too Large</h1>\r\n<hr>nginx/1.22.1\r\n</body>\r\n</html>\r\n", agl.CodeInvalid, "Entity Too Large: Too Large nginx/1.22.1"},
		{502, "<HTML><head><Style>\nh1 {}</style></head><h1>x" + strings.Repeat("é", 300) + "</h1>", agl.CodeUnavailable, "Bad Gateway: x" + strings.Repeat("é", 249) + "…"},
		{502, "upstream <a>:\n  refused", agl.CodeUnavailable, "upstream <a>: refused"},
		{403, ``, agl.CodeUnauthorized, "403 Forbidden"},
		{500, `{"detail":"Internal server error","code":"internal","request_id":"ID"}`, agl.CodeInternal, "request_id ID"},
	} {
		got := wire.DecodeError("Op", tc.status, []byte(tc.body))
		if agl.ErrorCode(got) != tc.code || !strings.Contains(got.Error(), tc.want) {
			t.Errorf("%d %s is %s: %v, want %s: …%s…", tc.status, tc.body, agl.ErrorCode(got), got, tc.code, tc.want)
		}
	}
}

func TestEventsAgree(t *testing.T) {
	t.Parallel()
	sent := filled[agl.Event](t)
	read := func(stream []byte) (event *agl.Event, err error) {
		var p wire.EventParser
		for line := range strings.Lines(string(stream)) {
			if event, err = p.Line([]byte(strings.TrimSuffix(line, "\n"))); event != nil || err != nil {
				break
			}
		}
		return event, err
	}
	got, err := read(wire.AppendEvent(nil, *sent))
	if err != nil || got == nil || *got != *sent {
		t.Errorf("got %+v, %v, want %+v", got, err, *sent)
	}
	if _, err := read(wire.AppendErrorEvent(nil, wire.AppendError(nil, agl.Errorf(agl.CodeUnavailable, "closed")))); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("error is %v, want unavailable", err)
	}
	gone := agl.Errorf(agl.CodeUnauthorized, "the key is unknown, expired or revoked")
	if _, err := read(wire.AppendErrorEvent(nil, wire.AppendError(nil, gone))); !errors.Is(err, agl.ErrUnauthorized) || err.Error() != gone.Error() {
		t.Errorf("error is %v, want %v", err, gone)
	}
}

func TestSegment(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"ro-1": "ro-1", "a/b c": "a%2Fb%20c", ".": "%2E", "..": "%2E%2E", "...": "..."} {
		if got := wire.Segment(id); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

func TestSpanToken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	of := agl.Claim{RolloutID: "ro/ä.1", AttemptID: "at-1"}
	token := wire.SpanToken("s3cret", of.RolloutID, of.AttemptID, now.Add(time.Minute))
	for _, tc := range []struct {
		name, token, given string
		at                 time.Time
		want               bool
	}{
		{"valid", "s3cret", token, now, true},
		{"of another server", "other", token, now, false},
		{"expired", "s3cret", token, now.Add(2 * time.Minute), false},
		{"without a mac", "s3cret", strings.Split(token, ".")[0], now, false},
		{"with another's mac", "s3cret", strings.Split(token, ".")[0] + "." + strings.Split(wire.SpanToken("s3cret", "r", "a", now), ".")[1], now, false},
		{"a run's key", "s3cret", "agl-run-x", now, false},
		{"empty", "s3cret", "agl-span-", now, false},
		{"the server's", "s3cret", "s3cret", now, false},
	} {
		got, ok := wire.CheckSpanToken(tc.token, tc.given, tc.at)
		if ok != tc.want || ok && got != of {
			t.Errorf("%s: got %+v, %t, want %t", tc.name, got, ok, tc.want)
		}
	}
}

func FuzzDecodeError(f *testing.F) {
	f.Add(422, []byte(`{"detail":[{"loc":[1,"a"],"msg":"m","input":[]}]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if err := wire.DecodeError("Op", status, body); agl.ErrorCode(err) == "" {
			t.Errorf("%v has no code", err)
		}
		_ = http.StatusText(status)
	})
}
