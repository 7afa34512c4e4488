package agl_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

const spanJSON = `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":3,"trace_id":"00","span_id":"b7ad6b7169203331","parent_id":null,"name":"agentlightning.annotation","status":{"status_code":"OK","description":null,"why":[1]},"attributes":{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1.0,"ids":[1,2.5],"b":true,"big":12345678901234567890,"e":"\u00e9\/"},"events":[{"name":"e","attributes":{"k":"v"},"timestamp":1.5}],"links":[{"context":{"trace_id":"1","span_id":"2","is_remote":false,"trace_state":{"x":"y"}},"attributes":null}],"start_time":1760706315.5,"end_time":null,"context":{"trace_id":"1","span_id":"2","is_remote":false,"trace_state":{}},"parent":null,"resource":{"attributes":{"service.name":"x"},"schema_url":""},"extra":{"a": 1},"other":null}`

func TestSpanPassesThrough(t *testing.T) {
	t.Parallel()
	var s agl.Span
	if err := rawjson.Unmarshal([]byte(spanJSON), &s); err != nil {
		t.Fatal(err)
	}
	if got := string(s.AppendJSON(nil)); got != spanJSON {
		t.Errorf("span changed on its way\n got %s\nwant %s", got, spanJSON)
	}
	if v, ok := s.Attributes.GetString("e"); !ok || v != "é/" {
		t.Errorf("attribute e = %q, %v", v, ok)
	}
}

func TestDecodeRejects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, doc string
		into      any
		pointer   string
		kind      string
	}{
		{"nested attribute", `{"x":{"a":1}}`, new(agl.Attributes), "/x", "attribute_type"},
		{"null attribute", `{"x":null}`, new(agl.Attributes), "/x", "attribute_type"},
		{"mixed list", `{"x":[1,"a"]}`, new(agl.Attributes), "/x", "attribute_type"},
		{"missing input", `{"mode":"train"}`, new(agl.EnqueueRollout), "/input", "missing"},
		{"mode", `{"input":1,"mode":"best"}`, new(agl.EnqueueRollout), "/mode", "literal_error"},
		{"max attempts", `{"input":1,"config":{"max_attempts":0}}`, new(agl.EnqueueRollout), "/config/max_attempts", "greater_than_equal"},
		{"second retry condition", `{"input":1,"config":{"retry_condition":["failed","cancelled"]}}`, new(agl.EnqueueRollout), "/config/retry_condition/1", "literal_error"},
		{"resource tag", `{"p":{"template":"x","engine":"jinja"}}`, new(agl.Resources), "/p", "union_tag_not_found"},
		{"engine", `{"p":{"resource_type":"prompt_template","template":"x","engine":"go"}}`, new(agl.Resources), "/p/engine", "literal_error"},
		{"span key", `{"rollout_id":"r"}`, new(agl.Span), "/attempt_id", "missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := rawjson.Unmarshal([]byte(tc.doc), tc.into)
			var field *agl.FieldError
			if !errors.As(err, &field) {
				t.Fatalf("error is %v, want a FieldError", err)
			}
			if string(field.Pointer) != tc.pointer || field.Type != tc.kind {
				t.Errorf("got %s at %q, want %s at %q", field.Type, field.Pointer, tc.kind, tc.pointer)
			}
			if agl.ErrorCode(err) != agl.CodeInvalid {
				t.Errorf("code is %s", agl.ErrorCode(err))
			}
		})
	}
}

func TestAttributeListsAreOfOneKind(t *testing.T) {
	t.Parallel()
	attrs, err := agl.NewAttributes(agl.Attr{Key: "a", Value: []float64{1, 2.5}}, agl.Attr{Key: "b", Value: []float64{1, math.Inf(-1), math.NaN()}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(attrs), `{"a":[1.0,2.5],"b":["1.0","-Infinity","NaN"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var back agl.Attributes
	if err := rawjson.Unmarshal(attrs, &back); err != nil {
		t.Errorf("they cannot be read back: %v", err)
	}
}

// TestDecodeInput: what the value has no field for is named, unless it is allowed.
func TestDecodeInput(t *testing.T) {
	t.Parallel()
	var input struct {
		Question string `json:"question"`
	}
	for doc, want := range map[string]string{
		`{"question":"a","question":"b"}`: "",
		`{"Question":"a"}`:                `unknown object member name "Question"`,
		`{"question":"a","anwser":1}`:     `unknown object member name "anwser"`,
		`{"question":1}`:                  "question",
		`[]`:                              "",
	} {
		task := agl.Task{Rollout: agl.Rollout{RolloutID: "ro-1", Input: jsontext.Value(doc)}}
		err := task.DecodeInput(&input)
		if want == "" && doc != `[]` {
			if err != nil || input.Question != "b" {
				t.Errorf("%s: %q, %v", doc, input.Question, err)
			}
			continue
		}
		if !errors.Is(err, agl.ErrInvalid) || !strings.HasPrefix(err.Error(), "task input: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
	task := agl.Task{Rollout: agl.Rollout{Input: jsontext.Value(`{"question":"a","more":1}`)}}
	if err := task.DecodeInput(&input, json.RejectUnknownMembers(false)); err != nil || input.Question != "a" {
		t.Errorf("with other members allowed: %q, %v", input.Question, err)
	}
}

// A document whose body does not fit is named, and is the fault of nobody who asked.
func TestDocumentBodies(t *testing.T) {
	t.Parallel()
	type note struct{ Text string }
	documents := []agl.Document{{Kind: "note", ID: "a", Body: []byte(`{"Text":"x"}`)}, {Kind: "note", ID: "b", Body: []byte(`{"Text":1}`)}}
	notes, err := agl.DecodeDocuments[note](documents[:1])
	if err != nil || len(notes) != 1 || notes[0].Text != "x" {
		t.Errorf("got %v, %v", notes, err)
	}
	_, err = agl.DecodeDocuments[note](documents)
	if agl.ErrorCode(err) != agl.CodeInternal || !strings.Contains(err.Error(), "document b of kind note") {
		t.Errorf("a body that does not fit: %v", err)
	}
}

// A query is read in pages, as far as it was asked for, and each time anew.
func TestPages(t *testing.T) {
	t.Parallel()
	const stored = 7
	var asked []agl.Paging
	query := func(_ context.Context, p agl.Paging) (agl.Page[int], error) {
		asked = append(asked, p)
		page := agl.Page[int]{Total: stored}
		for i := p.Offset; i < min(p.Offset+p.Limit, stored); i++ {
			page.Items = append(page.Items, i)
		}
		if p.SortBy != "" {
			return page, agl.Errorf(agl.CodeInvalid, "no order")
		}
		return page, nil
	}
	for _, test := range []struct {
		p       agl.Paging
		want    []int
		queries int
	}{
		{agl.Paging{}, []int{0, 1, 2, 3, 4, 5, 6}, 3},
		{agl.Paging{Limit: 4}, []int{0, 1, 2, 3}, 2},
		{agl.Paging{Limit: 3, Offset: 5}, []int{5, 6}, 1},
		{agl.Paging{Offset: 9}, nil, 1},
	} {
		all := agl.Pages(t.Context(), test.p, 3, query)
		for range 2 {
			asked = nil
			var got []int
			for i, err := range all {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, *i)
			}
			if !slices.Equal(got, test.want) || len(asked) != test.queries {
				t.Errorf("%+v: got %v by %+v, want %v by %d queries", test.p, got, asked, test.want, test.queries)
			}
		}
	}
	for i, err := range agl.Pages(t.Context(), agl.Paging{SortBy: "x"}, 3, query) {
		if i != nil || err == nil {
			t.Errorf("got %v, %v", i, err)
		}
	}
}
