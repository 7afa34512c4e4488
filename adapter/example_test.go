package adapter_test

import (
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

func ExampleTrajectories() {
	call := func(id string, sequence int64, prompt, reply []int) agl.Span {
		attributes, err := agl.NewAttributes(
			agl.Attr{Key: agl.AttrGenAIResponseID, Value: id},
			agl.Attr{Key: agl.AttrPromptTokenIDs, Value: prompt},
			agl.Attr{Key: agl.AttrResponseTokenIDs, Value: reply},
		)
		if err != nil {
			panic(err)
		}
		return agl.Span{SpanID: id, SequenceID: sequence, Name: agl.SpanLiteLLMRequest, Attributes: attributes}
	}
	merged, err := adapter.Trajectories{}.Adapt([]agl.Span{
		call("first", 1, []int{1, 2}, []int{3}),
		call("second", 2, []int{1, 2, 3, 4}, []int{5, 6}), // begins with all of the first
		call("third", 3, []int{1, 9}, []int{7}),           // does not
	})
	if err != nil {
		panic(err)
	}
	for _, trajectory := range merged.Trajectories {
		fmt.Println(trajectory.TokenIDs, trajectory.Mask)
	}
	for _, mismatch := range merged.Report.Mismatches {
		fmt.Println(mismatch.Call.SpanID, "parts from", mismatch.Previous.SpanID, "at", mismatch.At)
	}
	// Output:
	// [1 2 3 4 5 6] [false false true false true true]
	// [1 9 7] [false false true]
	// third parts from second at 1
}
