package memory_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// BenchmarkLists asks what the dashboard's lists ask, over 20,000 rollouts.
func BenchmarkLists(b *testing.B) {
	s := memorytest.Open(b)
	const n = 20_000
	for from := 0; from < n; from += 1000 {
		batch := make([]agl.EnqueueRollout, 1000)
		for i := range batch {
			batch[i] = agl.EnqueueRollout{Input: jsontext.Value(`"a task"`), Metadata: jsontext.Value(fmt.Sprintf(`{"run":"ru-1","step":%d}`, (from+i)/100))}
		}
		if _, err := s.EnqueueRollouts(b.Context(), agl.EnqueueRolloutsParams{Rollouts: batch}); err != nil {
			b.Fatal(err)
		}
	}
	newest := agl.Paging{Limit: 50, SortBy: "start_time", Order: agl.Descending}
	for _, query := range []struct {
		name string
		agl.QueryRolloutsParams
	}{
		{"newest", agl.QueryRolloutsParams{Paging: newest}},
		{"running", agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutRunning}, Paging: newest}},
		{"count", agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutQueuing}, Paging: agl.Paging{Limit: 1}}},
		{"step", agl.QueryRolloutsParams{Labels: []agl.Label{{Name: "run", Value: "ru-1"}, {Name: "step", Value: "7"}}, Paging: agl.Paging{Limit: 1000}}},
	} {
		b.Run(query.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.QueryRollouts(b.Context(), query.QueryRolloutsParams); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
