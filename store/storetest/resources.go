package storetest

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func resourcesTests(a *area) {
	a.test("add, update, latest", testResources)
	a.test("what no bundle can hold", testResourcesRefused)
	a.test("rollouts inherit the latest", testInherit)
	a.test("queries", testResourcesQuery)
	a.test("earlier versions", testResourceVersions)
	a.test("a rollout runs with what it was enqueued with", testBoundVersion)
	a.test("the latest stays when that is asked for", testKeepLatest)
}

func bundle(model string) agl.Resources {
	llm := agl.LLM{Endpoint: "http://h/v1", Model: model, SamplingParameters: jsontext.Value(`{"temperature":1.0}`)}
	return agl.Resources{
		{Name: "z", Resource: agl.PromptTemplate{Template: "hi {n}", Engine: agl.PromptFString}},
		{Name: "main", Resource: agl.ProxyLLM{LLM: llm}},
		{Name: "a", Resource: llm},
	}
}

func testResources(h *harness) {
	h.wantError(errorOf(h.Store.GetLatestResources(h.ctx)), agl.ErrNotFound, "")
	h.wantError(errorOf(h.Store.GetResources(h.ctx, agl.GetResourcesParams{})), agl.ErrNotFound, "")
	h.wantError(errorOf(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "nope"})), agl.ErrNotFound, "")
	first := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m1")}))(h)
	if len(first.ResourcesID) != len("rs-")+12 {
		h.Errorf("id %s is not rs- and 12 digits", first.ResourcesID)
	}
	equal(h, "version", first.Version, 1)
	equal(h, "resources", string(first.Resources.AppendJSON(nil)), string(bundle("m1").AppendJSON(nil)))
	second := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m2")}))(h)
	latest := func() agl.ResourcesUpdate {
		return must(h.Store.GetLatestResources(h.ctx))(h)
	}
	equal(h, "latest", latest().ResourcesID, second.ResourcesID)
	h.tick()
	updated := must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: first.ResourcesID, Resources: bundle("m3")}))(h)
	equal(h, "version", updated.Version, 2)
	equal(h, "create time", updated.CreateTime, first.CreateTime)
	if h.Advance != nil && updated.UpdateTime <= first.UpdateTime {
		h.Errorf("update time %v, want later than %v", updated.UpdateTime, first.UpdateTime)
	}
	equal(h, "latest", latest().ResourcesID, first.ResourcesID)
	now := latest()
	equal(h, "latest", string(now.AppendJSON(nil)), string(updated.AppendJSON(nil)))
	equal(h, "version", must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: "mine", Resources: bundle("m4")}))(h).Version, 1)
	equal(h, "latest", latest().ResourcesID, "mine")
	got := must(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: second.ResourcesID}))(h)
	equal(h, "by id", string(got.Resources.AppendJSON(nil)), string(bundle("m2").AppendJSON(nil)))
}

func testResourcesRefused(h *harness) {
	for text, resources := range map[string]agl.Resources{
		"resources.a: given twice, names must differ":                                       append(bundle("m"), agl.NamedResource{Name: "a", Resource: agl.LLM{}}),
		"resources.p: got *agl.LLM, must be an agl.LLM, agl.ProxyLLM or agl.PromptTemplate": {{Name: "p", Resource: &agl.LLM{}}},
		"resources.none: got <nil>, must be an agl.LLM, agl.ProxyLLM or agl.PromptTemplate": {{Name: "none"}},
	} {
		h.wantError(errorOf(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: resources, IdempotencyKey: "k"})), agl.ErrInvalid, text)
		_, err := h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: "u", Resources: resources, IdempotencyKey: "k"})
		h.wantError(err, agl.ErrInvalid, text)
	}
}

func testInherit(h *harness) {
	equal(h, "before there are any", h.enqueueOne().ResourcesID.Valid, false)
	u := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("m")}))(h)
	want := agl.Some(u.ResourcesID)
	equal(h, "enqueued", h.enqueueOne().ResourcesID, want)
	equal(h, "started", h.start(config(agl.RolloutConfig{}), "").ResourcesID, want)
	given := h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`), ResourcesID: agl.Some("any")})[0]
	equal(h, "given", given.ResourcesID, agl.Some("any"))
}

func testResourcesQuery(h *harness) {
	for i, id := range []string{"b", "a", "ab"} {
		must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: id, Resources: bundle(strconv.Itoa(i))}))(h)
	}
	must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: "b", Resources: bundle("new")}))(h)
	for _, tc := range []struct {
		p    agl.QueryResourcesParams
		want string
	}{
		{agl.QueryResourcesParams{}, "b a ab"},
		{agl.QueryResourcesParams{ResourcesID: "a"}, "a"},
		{agl.QueryResourcesParams{ResourcesIDContains: "a"}, "a ab"},
		{agl.QueryResourcesParams{ResourcesID: "b", ResourcesIDContains: "a"}, "-"},
		{agl.QueryResourcesParams{Paging: agl.Paging{SortBy: "resources_id"}}, "a ab b"},
		{agl.QueryResourcesParams{Paging: agl.Paging{SortBy: "version", Order: agl.Descending}}, "b a ab"},
		{agl.QueryResourcesParams{Paging: agl.Paging{Limit: 1, Offset: 1}}, "a"},
	} {
		got := must(h.Store.QueryResources(h.ctx, tc.p))(h)
		equal(h, "bundles", ids(got.Items, func(u *agl.ResourcesUpdate) string { return u.ResourcesID }), tc.want)
	}
	h.wantError(errorOf(h.Store.QueryResources(h.ctx, agl.QueryResourcesParams{Paging: agl.Paging{SortBy: "resources"}})), agl.ErrInvalid, "")
}

func (h *harness) update(id, model string) agl.ResourcesUpdate {
	h.Helper()
	u := must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: id, Resources: bundle(model)}))(h)
	h.tick()
	return u
}

func testResourceVersions(h *harness) {
	var all []agl.ResourcesUpdate
	for i := range 5 {
		all = append(all, h.update("mine", strconv.Itoa(i)))
	}
	for i := range all {
		got := must(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "mine", Version: agl.Some(i + 1)}))(h)
		equal(h, "version", string(got.AppendJSON(nil)), string(all[i].AppendJSON(nil)))
	}
	for _, version := range []int{-1, 0, 6} {
		_, err := h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "mine", Version: agl.Some(version)})
		h.wantError(err, agl.ErrNotFound, "Resources mine have no version "+strconv.Itoa(version))
	}
	h.wantError(errorOf(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "none", Version: agl.Some(1)})), agl.ErrNotFound, "")
	_, err := h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "mine", Version: agl.Some(1), RolloutID: "r"})
	h.wantError(err, agl.ErrInvalid, `version, rollout_id: got 1 and "r", must be one of them`)
	equal(h, "bundles", must(h.Store.QueryResources(h.ctx, agl.QueryResourcesParams{}))(h).Total, 1)
}

func testBoundVersion(h *harness) {
	get := func(rolloutID string) agl.ResourcesUpdate {
		h.Helper()
		return must(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "mine", RolloutID: rolloutID}))(h)
	}
	before := h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`), ResourcesID: agl.Some("mine")})[0]
	h.tick()
	var rollouts []agl.Rollout
	for i := range 6 {
		h.update("mine", strconv.Itoa(i))
		rollouts = append(rollouts, h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`)})[0])
		h.tick()
	}
	for i := range rollouts {
		equal(h, "the version of rollout "+strconv.Itoa(i), get(rollouts[i].RolloutID).Version, i+1)
	}
	equal(h, "the version of a rollout that was there first", get(before.RolloutID).Version, 1)
	h.wantError(errorOf(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: "mine", RolloutID: "none"})), agl.ErrNotFound, "")
}

func testKeepLatest(h *harness) {
	first := h.update("first", "a")
	added := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{Resources: bundle("b"), KeepLatest: true}))(h)
	must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: "second", Resources: bundle("c"), KeepLatest: true}))(h)
	latest := must(h.Store.GetLatestResources(h.ctx))(h)
	equal(h, "latest", latest.ResourcesID, first.ResourcesID)
	equal(h, "inherited", h.enqueueOne().ResourcesID, agl.Some(first.ResourcesID))
	got := must(h.Store.GetResources(h.ctx, agl.GetResourcesParams{ResourcesID: added.ResourcesID}))(h)
	equal(h, "kept", string(got.Resources.AppendJSON(nil)), string(bundle("b").AppendJSON(nil)))
}
