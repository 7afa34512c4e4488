package tracer_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// A runner opens the trace and ends it. The agent in between finds it in its context.
func Example() {
	ctx := context.Background()
	t, err := tracer.New(tracer.Config{Store: &spanStore{}}) // usually an agl.Store
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, trace, err := t.Start(ctx, agl.TraceParams{RolloutID: "ro-1", AttemptID: "at-1"})
	if err != nil {
		fmt.Println(err)
		return
	}

	shouted, err := tracer.Do(ctx, "shout", map[string]string{"text": "hey"}, func(context.Context) (string, error) {
		return strings.ToUpper("hey"), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := tracer.EmitReward(ctx, float64(len(shouted))); err != nil {
		fmt.Println(err)
		return
	}

	spans, err := trace.End(ctx)
	for _, span := range spans {
		fmt.Println(span.SequenceID, span.Name, string(span.Attributes))
	}
	fmt.Println(err)
	// Output:
	// 1 agentlightning.operation {"agentlightning.operation.name":"shout","agentlightning.operation.input.text":"hey","agentlightning.operation.output":"HEY"}
	// 2 agentlightning.annotation {"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":3.0}
	// 3 ro-1 {}
	// <nil>
}
