package proxy_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// enqueued is a store that knows with which resources rollouts were enqueued.
type enqueued struct {
	resources map[string]string
	asked     atomic.Int64
	err       atomic.Pointer[error]
}

func (e *enqueued) GetRollout(_ context.Context, p agl.GetRolloutParams) (r agl.AttemptedRollout, err error) {
	e.asked.Add(1)
	if err := e.err.Load(); err != nil {
		return r, *err
	}
	resources, ok := e.resources[p.RolloutID]
	if !ok {
		return r, agl.Errorf(agl.CodeNotFound, "rollout %s", p.RolloutID)
	}
	r.RolloutID, r.ResourcesID = p.RolloutID, agl.Null[string]{V: resources, Valid: resources != ""}
	return r, nil
}

// Rollouts that are pinned to resources keep the version that was published with them, whatever is published meanwhile; all others get the
// newest. The record of each call has the version that answered.
func TestPinnedRollouts(t *testing.T) {
	t.Parallel()
	backends := map[string]*proxytest.Server{}
	for _, version := range []string{"v1", "v2", "v3"} {
		backends[version] = serve(t, proxytest.VLLM(func(string, int) string { return "I am " + version }))
	}
	model := func(version, resources string) proxy.Model {
		return proxy.Model{Name: "m", BaseURL: backends[version].BaseURL(), Version: version, Resources: resources}
	}
	store := &enqueued{resources: map[string]string{"first": "rs-1", "second": "rs-2", "other": "rs-9", "none": ""}}
	g := start(t, backends["v1"].BaseURL(), func(c *proxy.Config) { c.Rollouts = store })
	publish := func(models ...proxy.Model) {
		t.Helper()
		if err := g.SetModels(models); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	ask := func(rollout, want string) {
		t.Helper()
		calls++
		if r := post(t, g.URL+"/rollout/"+rollout+"/attempt/a/v1/chat/completions", hello); r.status != 200 || !strings.Contains(string(r.body), "I am "+want) {
			t.Errorf("%s: status %d: %s, want an answer of %s", rollout, r.status, r.body, want)
		}
		flush(t, g, rollout)
		list := g.spans.calls()
		if len(list) != calls {
			t.Fatalf("%d calls are recorded, want %d", len(list), calls)
		}
		last := list[len(list)-1]
		for _, name := range []string{agl.AttrModelVersion, agl.AttrModelVersionEnd} {
			if got := attribute(t, &last, name); got != want {
				t.Errorf("%s: %s is %q, want %q", rollout, name, got, want)
			}
		}
		if got := attribute(t, &last, agl.AttrGenAIRequestModel); got != "m" {
			t.Errorf("%s: the model is %q, want that which was asked for", rollout, got)
		}
	}
	ask("first", "v1")
	if store.asked.Load() != 0 {
		t.Error("a proxy with one version asks for the rollout")
	}
	publish(model("v1", ""), model("v1", "rs-1"))
	ask("first", "v1")
	publish(model("v2", ""), model("v1", "rs-1"), model("v2", "rs-2"))
	ask("first", "v1")
	ask("second", "v2")
	publish(model("v3", ""), model("v1", "rs-1"), model("v2", "rs-2"), model("v3", "rs-3"))
	for range 2 {
		ask("first", "v1")
		ask("second", "v2")
		ask("other", "v3")
		ask("none", "v3")
	}
	if n := store.asked.Load(); n != 4 {
		t.Errorf("the store was asked %d times for 4 rollouts", n)
	}
	ask("unknown", "v3")
	if list := get(t, g.URL+"/v1/models"); strings.Count(list, `"id"`) != 1 {
		t.Errorf("models %s, want one", list)
	}
	if n := len(g.Backends()); n != 4 {
		t.Errorf("%d backends, want 4", n)
	}
	broken := errors.New("out of order")
	store.err.Store(&broken)
	ask("first", "v1")
	if r := post(t, g.URL+"/rollout/late/attempt/a/v1/chat/completions", hello); r.status != 503 || !strings.Contains(string(r.body), "version_unknown") {
		t.Errorf("without the store: status %d: %s", r.status, r.body)
	}
}
