package runner_test

import (
	"context"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
)

// BenchmarkRollout is what the machinery costs around an agent that only hands
// back a reward: claim, resources, trace, two spans, report; eight workers over
// the store in memory.
func BenchmarkRollout(b *testing.B) {
	db, err := openMemory(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(b.Context()))
	if _, err := db.AddResources(b.Context(), agl.AddResourcesParams{Resources: someResources}); err != nil {
		b.Fatal(err)
	}
	batch := make([]agl.EnqueueRollout, b.N)
	for i := range batch {
		batch[i].Input = jsontext.Value(`1`)
	}
	if _, err := db.EnqueueRollouts(b.Context(), agl.EnqueueRolloutsParams{Rollouts: batch}); err != nil {
		b.Fatal(err)
	}
	r, err := runner.New(runner.Config{Store: db, Workers: 8, MaxRollouts: b.N, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
		return agl.RewardResult(1), nil
	})})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := r.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
}
