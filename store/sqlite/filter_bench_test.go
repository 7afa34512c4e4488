//go:build unix

package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

// BenchmarkFilters lists 50 of 100,000 rollouts by each filter, and fails if a list takes more than 100 ms of the processor, which
// on an idle machine is the time until it is there.
func BenchmarkFilters(b *testing.B) {
	const rollouts, batch, most = 100_000, 2000, 100 * time.Millisecond
	d := open(b, sqlite.Config{Sync: sqlite.SyncNormal})
	defer closeDriver(b, d)
	for from := 0; from < rollouts; from += batch {
		var c driver.Changes
		for i := from; i < from+batch; i++ {
			id := fmt.Sprintf("ro-%06d", i)
			r, a := newRollout(id, agl.RolloutSucceeded), newAttempt(id, 1, agl.AttemptSucceeded)
			r.Rollout.StartTime, r.Rollout.Mode = agl.Timestamp(i/8), agl.Modes()[i%3]
			r.Rollout.Metadata = jsontext.Value(fmt.Sprintf(`{"algorithm":"grpo","run":"ru-%d","step":%d,"group":%d,"sample":%d,"index":%d,"seed":%d}`, i/50_000, i/128, i/8%16, i%8, i%977, i*7919))
			a.Attempt.Reward = agl.Some(agl.AttemptReward{Value: float64(i%1000) / 1000, Priority: agl.Some(0.0), SequenceID: 5})
			c.Rollouts, c.Attempts = append(c.Rollouts, r), append(c.Attempts, a)
		}
		mustApply(b, d, c)
	}
	newest := agl.Paging{Limit: 50, SortBy: "start_time", Order: agl.Descending}
	label := func(name, value string) agl.Label { return agl.Label{Name: name, Value: value} }
	for name, p := range map[string]agl.QueryRolloutsParams{
		"none":          {Paging: newest},
		"run":           {Labels: []agl.Label{label("run", "ru-1")}, Paging: newest},
		"run and step":  {Labels: []agl.Label{label("run", "ru-1"), label("step", "500")}, Paging: newest},
		"other label":   {Labels: []agl.Label{label("index", "42")}, Paging: newest},
		"few rewards":   {RewardMax: agl.Some(0.01), Paging: newest},
		"many rewards":  {RewardMin: agl.Some(0.5), Paging: newest},
		"by reward":     {Paging: agl.Paging{Limit: 50, SortBy: "reward"}},
		"status":        {StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, Paging: newest},
		"mode":          {ModeIn: []agl.Mode{agl.ModeVal}, Paging: newest},
		"status, mode":  {StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, ModeIn: []agl.Mode{agl.ModeVal}, Paging: newest},
		"mode, reward":  {ModeIn: []agl.Mode{agl.ModeVal}, RewardMin: agl.Some(0.5), Paging: newest},
		"status, label": {StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, Labels: []agl.Label{label("run", "ru-1")}, Paging: newest},
		"id":            {RolloutIDContains: "9999", Paging: newest},
		"all at once":   {Labels: []agl.Label{label("run", "ru-1"), label("group", "3")}, RewardMax: agl.Some(0.5), StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, Paging: newest},
		"after the key": {After: "ro-050000", Labels: []agl.Label{label("group", "3")}, Paging: newest},
	} {
		b.Run(name, func(b *testing.B) {
			fastest := time.Hour
			for b.Loop() {
				start := processorTime()
				if page, err := d.QueryRollouts(b.Context(), p); err != nil || len(page.Items) != 50 && name != "run and step" && name != "id" {
					b.Fatalf("%d rollouts, error %v", len(page.Items), err)
				}
				fastest = min(fastest, processorTime()-start)
			}
			if b.ReportMetric(float64(fastest.Microseconds())/1000, "ms/fastest"); fastest > most {
				b.Errorf("the fastest list takes %v, want at most %v", fastest, most)
			}
		})
	}
}
