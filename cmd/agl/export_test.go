package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/runner/process"
)

// calls puts rollouts with recorded model calls into the store: $GOOD has two
// calls of one conversation and a reward, $LOST ended by a timeout, $LIVE has not
// ended.
func calls(ts *testscript.TestScript, _ bool, _ []string) {
	ctx := context.Background()
	store := dial(ts)
	for _, r := range []struct {
		name string
		end  agl.AttemptStatus
		kind agl.OutcomeKind
		span string
	}{
		{"GOOD", agl.AttemptSucceeded, agl.OutcomeOK, agl.SpanLiteLLMRequest},
		{"LOST", agl.AttemptFailed, agl.OutcomeTimeout, agl.SpanLiteLLMRequest},
		{"LIVE", "", "", agl.SpanChatCompletion},
	} {
		rollout, err := store.StartRollout(ctx, agl.StartRolloutParams{
			EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`"x"`), Mode: agl.ModeTrain},
		})
		ts.Check(err)
		ts.Setenv(r.name, rollout.RolloutID)
		call := func(id string, prompt, reply []int, text string) testSpan {
			return testSpan{id: id, name: r.span, attrs: []agl.Attr{
				{Key: agl.AttrGenAIResponseID, Value: "chatcmpl-" + id},
				{Key: agl.AttrPromptTokenIDs, Value: prompt}, {Key: agl.AttrResponseTokenIDs, Value: reply},
				{Key: agl.AttrLogprobsContent, Value: fmt.Sprintf(`[{"logprob":%v}]`, -math.Ldexp(1, -len(prompt)))},
				{Key: "gen_ai.prompt.0.role", Value: "user"}, {Key: "gen_ai.prompt.0.content", Value: "3 + 4"},
				{Key: "gen_ai.completion.0.role", Value: "assistant"}, {Key: "gen_ai.completion.0.content", Value: text},
			}}
		}
		addSpans(ts, store, rollout,
			call("a", []int{1, 2}, []int{3}, "7"), call("b", []int{1, 2, 3, 4}, []int{5}, "seven"),
			testSpan{id: "c", name: agl.SpanAnnotation, attrs: rewardAttrs(ts, agl.Reward{Name: "primary", Value: 0.5})},
		)
		if r.end == "" {
			continue
		}
		_, err = store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
			RolloutID: rollout.RolloutID, AttemptID: rollout.Attempt.AttemptID, Status: &r.end,
			Metadata: agl.WithOutcome(nil, agl.Outcome{Kind: r.kind}),
		})
		ts.Check(err)
	}
}

// broken puts a rollout into the store whose reward is no number.
func broken(ts *testscript.TestScript, _ bool, _ []string) {
	store := dial(ts)
	r, err := store.StartRollout(context.Background(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
	ts.Check(err)
	addSpans(ts, store, r, testSpan{id: "a", name: agl.SpanAnnotation, attrs: []agl.Attr{{Key: "reward", Value: "high"}}})
	status := agl.AttemptSucceeded
	_, err = store.UpdateAttempt(context.Background(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status})
	ts.Check(err)
}

// talk puts a rollout into the store in which an agent calls a model twice, and a tool
// in between; proxy and tracer have recorded both calls. Its id is $TALK.
func talk(ts *testscript.TestScript, _ bool, _ []string) {
	ctx := context.Background()
	store := dial(ts)
	r, err := store.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`"x"`)}})
	ts.Check(err)
	ts.Setenv("TALK", r.RolloutID)
	question := []agl.Attr{
		{Key: "gen_ai.prompt.0.role", Value: "system"}, {Key: "gen_ai.prompt.0.content", Value: "be brief"},
		{Key: "gen_ai.prompt.1.role", Value: "user"}, {Key: "gen_ai.prompt.1.content", Value: "weather in Bonn?"},
	}
	toolCall := []agl.Attr{
		{Key: "gen_ai.prompt.2.role", Value: "assistant"}, {Key: "gen_ai.prompt.2.tool_calls.0.id", Value: "t"},
		{Key: "gen_ai.prompt.2.tool_calls.0.name", Value: "weather"}, {Key: "gen_ai.prompt.2.tool_calls.0.arguments", Value: `{"city":"Bonn"}`},
		{Key: "gen_ai.prompt.3.role", Value: "tool"}, {Key: "gen_ai.prompt.3.tool_call_id", Value: "t"},
		{Key: "gen_ai.prompt.3.content", Value: "rain\nuntil noon"},
		{Key: "gen_ai.completion.0.role", Value: "assistant"}, {Key: "gen_ai.completion.0.content", Value: "It rains."},
	}
	var spans []testSpan
	for i, name := range []string{agl.SpanLiteLLMRequest, agl.SpanChatCompletion} {
		first := append(slices.Clone(question), agl.Attr{Key: agl.AttrGenAIResponseID, Value: "one"})
		second := slices.Concat(question, toolCall, []agl.Attr{{Key: agl.AttrGenAIResponseID, Value: "two"}})
		spans = append(spans, testSpan{id: fmt.Sprint("a", i), name: name, attrs: first}, testSpan{id: fmt.Sprint("b", i), name: name, attrs: second})
	}
	spans = append(spans,
		testSpan{id: "out", name: agl.SpanMessage, attrs: []agl.Attr{
			{Key: process.AttrStream, Value: "stdout"}, {Key: agl.AttrMessageBody, Value: "looking \x1b[31m\ndone\n"},
		}},
		testSpan{id: "reward", name: agl.SpanAnnotation, attrs: rewardAttrs(ts, agl.Reward{Name: "primary", Value: 1})})
	addSpans(ts, store, r, spans...)
	status := agl.AttemptSucceeded
	_, err = store.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status})
	ts.Check(err)
}

// checkRows is rows FILE, which prints the rows of a Parquet file as JSON Lines into a file of the
// same name with .jsonl behind it.
func checkRows(ts *testscript.TestScript, _ bool, args []string) {
	r, err := dataset.Open(ts.MkAbs(args[0]), dataset.Options{Format: dataset.FormatParquet})
	ts.Check(err)
	defer r.Close()
	var lines []byte
	for row, err := range r.Records() {
		ts.Check(err)
		lines = append(append(lines, row...), '\n')
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".jsonl"), lines, 0o600))
}

// many N puts succeeded rollouts into the store, each with a call of its own.
func many(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	store := dial(ts)
	status := agl.AttemptSucceeded
	for i := range n {
		r, err := store.StartRollout(context.Background(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
		ts.Check(err)
		addSpans(ts, store, r, testSpan{id: "a", name: agl.SpanLiteLLMRequest, attrs: []agl.Attr{
			{Key: agl.AttrPromptTokenIDs, Value: []int{i}}, {Key: agl.AttrResponseTokenIDs, Value: []int{1}},
		}})
		_, err = store.UpdateAttempt(context.Background(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status})
		ts.Check(err)
	}
}
