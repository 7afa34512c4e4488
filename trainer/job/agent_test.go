package job

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
)

// TestQuiet: a person is told once that attempts run and none ends.
func TestQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		r := &countedAgent{
			Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
				var seconds int
				if err := task.DecodeInput(&seconds); err != nil {
					return agl.Result{}, err
				}
				time.Sleep(time.Duration(seconds) * time.Second)
				return agl.Result{}, ctx.Err()
			}),
			notice: func(text string) { told = append(told, text) },
		}
		start := func(input string) {
			go func() {
				if _, err := r.Run(t.Context(), agl.Task{Rollout: agl.Rollout{Input: []byte(input)}}); err != nil {
					t.Error(err)
				}
			}()
		}
		start("50")
		start("100")
		time.Sleep(105 * time.Second)
		synctest.Wait()
		if len(told) > 0 {
			t.Errorf("told %q while attempts ended", told)
		}
		start("200")
		start("300")
		time.Sleep(2 * quietTime)
		synctest.Wait()
		want := []string{"no attempt has ended for 1m0s, 2 are running; agent.timeout limits them, and agl train --dry-run shows what one does"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		start("400")
		r.wait(time.Hour)
		if len(told) != 1 {
			t.Errorf("told %q, want it once", told)
		}
	})
}
