package algorithm

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// WithSampling returns resources with the members of params, an object, set in the
// sampling parameters of every model endpoint.
func WithSampling(resources agl.Resources, params jsontext.Value) (agl.Resources, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(params, &members); err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "sampling parameters: got %s, must be an object: %w", params, err)
	}
	set := func(llm agl.LLM) agl.LLM {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			llm.SamplingParameters = rawjson.Set(llm.SamplingParameters, name, members[name])
		}
		return llm
	}
	out := make(agl.Resources, len(resources))
	for i, r := range resources {
		switch v := r.Resource.(type) {
		case agl.LLM:
			r.Resource = set(v)
		case agl.ProxyLLM:
			r.Resource = agl.ProxyLLM{LLM: set(v.LLM)}
		}
		out[i] = r
	}
	return out, nil
}

// SamplingVersion returns the id of resources whose model endpoints sample with
// params: a new version with these parameters or, if params is nil, published.
func SamplingVersion(ctx context.Context, store agl.Store, resources agl.Resources, params jsontext.Value, published string) (id string, err error) {
	if params == nil {
		return published, nil
	}
	bundle, err := WithSampling(resources, params)
	if err != nil {
		return "", err
	}
	version, err := store.AddResources(ctx, agl.AddResourcesParams{Resources: bundle, KeepLatest: true})
	if err != nil {
		return "", fmt.Errorf("add resources: %w", err)
	}
	return version.ResourcesID, nil
}
