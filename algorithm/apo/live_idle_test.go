package apo_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestLiveGoesOn: resources without a prompt, days without users, a model that fails for hours and a spent budget end no live run. Users keep what they have.
func TestLiveGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of other tests")
	}
	synctest.Test(t, func(t *testing.T) {
		w := apotest.Slope()
		st := memorytest.Open(t)
		collector, err := collect.New(collect.Config{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		service := &shop{world: w, store: st, decisions: map[string]algorithm.CandidateState{}}
		bare, err := st.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{{Name: "model", Resource: agl.LLM{Endpoint: "http://x/v1", Model: "m"}}}})
		if err != nil {
			t.Fatal(err)
		}
		service.stable = bare.ResourcesID // somebody has released what has no prompt
		began := time.Now()
		const outage = 3 * time.Hour
		var failed, answered int
		var broken time.Time
		cfg := config(5)
		cfg.Budget, cfg.OutDir = apo.Budget{Tokens: 800}, t.TempDir()
		cfg.GradientModel = apo.ModelFunc(func(ctx context.Context, r apo.Request) (apo.Reply, error) {
			if broken.IsZero() {
				broken = time.Now()
			}
			if time.Since(broken) < outage {
				failed++
				return apo.Reply{}, errors.New("the model is down")
			}
			answered++
			return writer(ctx, r)
		})
		cfg.Rounds = 0 // without an end
		cfg.Live = &apo.Live{Releaser: service, Sessions: 8}
		a := newAPO(t, cfg)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := a.Run(ctx, agl.AlgorithmInput{Store: st, Collector: collector, InitialResources: w.Resources()}); !errors.Is(err, context.Canceled) {
				t.Errorf("it has ended: %v", err)
			}
		})
		time.Sleep(24 * time.Hour)
		service.mu.Lock()
		service.stable = "" // and has rolled it back
		service.mu.Unlock()
		time.Sleep(2 * 24 * time.Hour)
		open, closing := context.WithCancel(t.Context())
		running.Go(func() { service.open(open) })
		time.Sleep(time.Second)
		closing()
		time.Sleep(outage + 24*time.Hour)
		open, closing = context.WithCancel(t.Context())
		running.Go(func() { service.open(open) })
		time.Sleep(2 * time.Second)
		closing()
		time.Sleep(24 * time.Hour)
		stop()
		running.Wait()
		report := a.Report()
		if failed < 100 || failed > 200 || answered < 4 {
			t.Errorf("the model has failed %d times, and answered %d calls; want one call a minute", failed, answered)
		}
		if !report.OutOfBudget || report.Finished || len(report.Live) == 0 || len(service.proposed) == 0 {
			t.Errorf("after %s: out of budget %t, finished %t, %d rounds", time.Since(began), report.OutOfBudget, report.Finished, len(report.Live))
		}
	})
}
