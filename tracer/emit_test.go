package tracer_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

type answer struct {
	Text  string  `json:"text"`
	Score float64 `json:"score"`
}

func TestEmitters(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		emit func(ctx context.Context) (agl.Span, error)
		span string
		want string
	}{
		{"scalar reward", func(ctx context.Context) (agl.Span, error) { return tracer.EmitReward(ctx, 1) },
			agl.SpanAnnotation, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1.0}`},
		{"reward of several dimensions", func(ctx context.Context) (agl.Span, error) {
			return tracer.EmitRewards(ctx, []agl.Reward{{Name: "accuracy", Value: 0.5}, {Name: "brevity", Value: -1}})
		}, agl.SpanAnnotation, `{"agentlightning.reward.0.name":"accuracy","agentlightning.reward.0.value":0.5,"agentlightning.reward.1.name":"brevity","agentlightning.reward.1.value":-1.0}`},
		{"annotation", func(ctx context.Context) (agl.Span, error) {
			return tracer.EmitAnnotation(ctx, map[string]any{
				"b": map[string]any{"ids": []int{1, 2}, "mixed": []any{1, "x", nil}, "none": nil}, "a": 2.0, "nan": math.NaN(), "objs": []answer{{"x", 1}},
			})
		}, agl.SpanAnnotation, `{"a":2.0,"b.ids":[1,2],"b.mixed.0":1,"b.mixed.1":"x","nan":"NaN","objs.0.text":"x","objs.0.score":1.0}`},
		{"message", func(ctx context.Context) (agl.Span, error) { return tracer.EmitMessage(ctx, "hi\n") },
			agl.SpanMessage, `{"agentlightning.message.body":"hi\n"}`},
		{"string", func(ctx context.Context) (agl.Span, error) { return tracer.EmitObject(ctx, "x") },
			agl.SpanObject, `{"agentlightning.object.type":"str","agentlightning.object.literal":"x"}`},
		{"integer", func(ctx context.Context) (agl.Span, error) { return tracer.EmitObject(ctx, uint8(7)) },
			agl.SpanObject, `{"agentlightning.object.type":"int","agentlightning.object.literal":"7"}`},
		{"float", func(ctx context.Context) (agl.Span, error) { return tracer.EmitObject(ctx, 0.25) },
			agl.SpanObject, `{"agentlightning.object.type":"float","agentlightning.object.literal":"0.25"}`},
		{"boolean", func(ctx context.Context) (agl.Span, error) { return tracer.EmitObject(ctx, true) },
			agl.SpanObject, `{"agentlightning.object.type":"bool","agentlightning.object.literal":"true"}`},
		{"bytes", func(ctx context.Context) (agl.Span, error) { return tracer.EmitObject(ctx, []byte{0, 255}) },
			agl.SpanObject, `{"agentlightning.object.type":"bytes","agentlightning.object.literal":"AP8="}`},
		{"struct", func(ctx context.Context) (agl.Span, error) { return tracer.EmitObject(ctx, answer{"x", 1}) },
			agl.SpanObject, `{"agentlightning.object.type":"tracer_test.answer","agentlightning.object.json":"{\"text\":\"x\",\"score\":1.0}"}`},
		{"text that is not UTF-8", func(ctx context.Context) (agl.Span, error) {
			return tracer.EmitAnnotation(ctx, map[string]any{"file": "caf\xe9", "raw": jsontext.Value(`"cut \ud83d"`)})
		}, agl.SpanAnnotation, `{"file":"caf�","raw":"cut �"}`},
		{"exception", func(ctx context.Context) (agl.Span, error) {
			return tracer.EmitException(ctx, errors.New("no"), "stack")
		}, agl.SpanException, `{"exception.type":"*errors.errorString","exception.message":"no","exception.escaped":false,"exception.stacktrace":"stack"}`},
		{"links and tags", func(ctx context.Context) (agl.Span, error) {
			return tracer.EmitMessage(ctx, "m", tracer.WithLinks(tracer.Link{Key: "gen_ai.response.id", Value: "r"}), tracer.WithTags("a", "b"),
				tracer.WithAttributes(agl.Attr{Key: "k", Value: []int64{1}}))
		}, agl.SpanMessage, `{"agentlightning.message.body":"m","k":[1],"agentlightning.link.0.key_match":"gen_ai.response.id","agentlightning.link.0.value_match":"r","agentlightning.tag.0":"a","agentlightning.tag.1":"b"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store := &spanStore{}
			ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
			outer, parent := tracer.Start(ctx, "outer")
			emitted, err := tc.emit(outer)
			if err != nil {
				t.Fatal(err)
			}
			parent.End()
			got := end(t, open)[0]
			if got.Name != tc.span || string(got.Attributes) != tc.want {
				t.Errorf("%s\n got %s\nwant %s", got.Name, got.Attributes, tc.want)
			}
			if got.ParentID.V != parent.SpanContext().SpanID().String() || got.SpanID != emitted.SpanID || !got.EndTime.Valid {
				t.Errorf("span is %+v", got)
			}
			if _, err := tc.emit(t.Context()); !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "no active trace") {
				t.Errorf("without a trace the error is %v", err)
			}
		})
	}
}

func TestEmittersReject(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
	for name, emit := range map[string]func() (agl.Span, error){
		`reward "primary": got NaN, must be a finite number`: func() (agl.Span, error) { return tracer.EmitReward(ctx, math.NaN()) },
		`reward: no dimension given`:                         func() (agl.Span, error) { return tracer.EmitRewards(ctx, nil) },
		`reward "a": given twice`: func() (agl.Span, error) {
			return tracer.EmitRewards(ctx, []agl.Reward{{Name: "a"}, {Name: "a"}})
		},
		`annotation: got a []int, must be a map or a struct`: func() (agl.Span, error) { return tracer.EmitAnnotation(ctx, []int{1}) },
		`object: a chan int has no JSON form`:                func() (agl.Span, error) { return tracer.EmitObject(ctx, make(chan int)) },
		`exception: got nil, must be an error`:               func() (agl.Span, error) { return tracer.EmitException(ctx, nil, "") },
		`attribute "k": a struct {} cannot be an attribute`: func() (agl.Span, error) {
			return tracer.EmitMessage(ctx, "", tracer.WithAttributes(agl.Attr{Key: "k", Value: struct{}{}}))
		},
	} {
		if _, err := emit(); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v, want %s", err, name)
		}
	}
	if spans := end(t, open); len(spans) != 0 {
		t.Errorf("stored %v", names(spans))
	}
}

func TestWithoutPropagation(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
	got, err := tracer.EmitReward(ctx, 0.5, tracer.WithoutPropagation())
	if err != nil || got.RolloutID != "ro-1" || got.Name != agl.SpanAnnotation {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := tracer.EmitReward(t.Context(), 0.5, tracer.WithoutPropagation()); err != nil {
		t.Errorf("a span that stays here needs no trace: %v", err)
	}
	if spans := end(t, open); len(spans) != 0 {
		t.Errorf("stored %v", names(spans))
	}
}

func TestOperation(t *testing.T) {
	t.Parallel()
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	got, err := tracer.Do(ctx, "search", map[string]any{"query": "x", "top": 3}, func(ctx context.Context) (answer, error) {
		_, err := tracer.EmitMessage(ctx, "inside")
		return answer{"y", 0.5}, err
	})
	if err != nil || got.Text != "y" {
		t.Fatalf("got %v, %v", got, err)
	}
	failure := errors.New("not found")
	if _, err := tracer.Do(ctx, "fails", nil, func(context.Context) (int, error) { return 0, failure }); !errors.Is(err, failure) {
		t.Errorf("error is %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = tracer.Do(ctx, "panics", nil, func(context.Context) (int, error) { panic("x") })
	}()
	if _, err := tracer.Do(t.Context(), "untraced", nil, func(context.Context) (int, error) { return 0, nil }); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("without a trace the error is %v", err)
	}
	spans := end(t, open)
	if got := names(spans); !slices.Equal(got, []string{agl.SpanMessage, agl.SpanOperation, agl.SpanOperation, agl.SpanOperation, "ro-1"}) {
		t.Fatalf("stored %v", got)
	}
	if spans[0].ParentID.V != spans[1].SpanID {
		t.Error("what happens inside an operation is not its child")
	}
	want := `{"agentlightning.operation.name":"search","agentlightning.operation.input.query":"x","agentlightning.operation.input.top":3,"agentlightning.operation.output.text":"y","agentlightning.operation.output.score":0.5}`
	if string(spans[1].Attributes) != want {
		t.Errorf("attributes\n got %s\nwant %s", spans[1].Attributes, want)
	}
	for i, wantStatus := range map[int]string{1: "", 2: "not found", 3: "it panicked"} {
		if got := spans[i].Status.Description.V; got != wantStatus {
			t.Errorf("status of operation %d is %q, want %q", i, got, wantStatus)
		}
	}
}

// A tool may read a file of another encoding: its call goes on, and is recorded with what is text.
func TestOperationsTakeTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	got, err := tracer.Do(ctx, "read", "caf\xe9.txt", func(context.Context) (answer, error) { return answer{"\xff", 1}, nil })
	if err != nil || got.Text != "\xff" {
		t.Fatalf("got %q, %v", got.Text, err)
	}
	spans := end(t, open)
	want := `{"agentlightning.operation.name":"read","agentlightning.operation.input":"caf�.txt","agentlightning.operation.output.text":"�","agentlightning.operation.output.score":1.0}`
	if string(spans[0].Attributes) != want {
		t.Errorf("attributes\n got %s\nwant %s", spans[0].Attributes, want)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	mk := func(id, attrs string) agl.Span {
		return agl.Span{TraceID: "t", SpanID: id, Attributes: agl.Attributes(attrs)}
	}
	a, b := mk("a", `{"gen_ai.response.id":"r1"}`), mk("b", `{"gen_ai.response.id":"r2","n":1}`)
	spans := []agl.Span{a, b}
	for _, tc := range []struct {
		links []tracer.Link
		want  []string
	}{
		{tracer.LinkTo(b), []string{"b"}},
		{[]tracer.Link{{Key: "trace_id", Value: "t"}}, []string{"a", "b"}},
		{[]tracer.Link{{Key: "gen_ai.response.id", Value: "r1"}}, []string{"a"}},
		{[]tracer.Link{{Key: "gen_ai.response.id", Value: "r1"}, {Key: "span_id", Value: "b"}}, nil},
		{[]tracer.Link{{Key: "missing", Value: ""}}, nil},
		{nil, []string{"a", "b"}},
	} {
		attrs, err := agl.NewAttributes(append(tracer.LinkAttributes(tc.links...), tracer.TagAttributes("x", "y")...)...)
		if err != nil {
			t.Fatal(err)
		}
		carrier := agl.Span{Attributes: attrs}
		if diff := cmp.Diff(tc.links, tracer.Links(carrier)); diff != "" {
			t.Errorf("links do not read back: %s", diff)
		}
		if got := tracer.Tags(carrier); !slices.Equal(got, []string{"x", "y"}) {
			t.Errorf("tags are %v", got)
		}
		var got []string
		for _, s := range tracer.LinkedSpans(spans, tc.links) {
			got = append(got, s.SpanID)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v leads to %v, want %v", tc.links, got, tc.want)
		}
	}
}
