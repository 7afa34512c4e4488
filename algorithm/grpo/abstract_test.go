package grpo_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/store/storetest"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// A store with the abstract methods only trains to the same weights as a whole one.
func TestStoreOfAbstractMethods(t *testing.T) {
	t.Parallel()
	var ends []ending
	for _, wrap := range []func(agl.Store) agl.Store{func(s agl.Store) agl.Store { return s }, storetest.Abstract} {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, nil)
			summary, _, err := r.process(t, wrap(memorytest.Open(t)), t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, r.ending(t, summary))
		})
	}
	if diff := cmp.Diff(ends[0], ends[1]); diff != "" || len(ends[0].History) != faultSteps {
		t.Errorf("the end over a whole store and over abstract methods, after %d steps:\n%s", len(ends[0].History), diff)
	}
}
