package agl

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/runkey"
)

// ResourceType discriminates the kinds of [Resource] on the wire.
type ResourceType string

// The resource types.
const (
	ResourceLLM            ResourceType = "llm"
	ResourceProxyLLM       ResourceType = "proxy_llm"
	ResourcePromptTemplate ResourceType = "prompt_template"
)

func resourceTypes() []ResourceType {
	return []ResourceType{ResourceLLM, ResourceProxyLLM, ResourcePromptTemplate}
}

// Resource is one thing that is being tuned: an [LLM], a [ProxyLLM] or a
// [PromptTemplate].
type Resource interface {
	ResourceType() ResourceType
	AppendJSON(dst []byte) []byte // appends the wire form
}

// LLM is a model endpoint.
type LLM struct {
	Endpoint string // the OpenAI-compatible base URL
	Model    string
	// APIKey may be "env:NAME"; it is resolved where the call is made.
	APIKey             Null[string]
	SamplingParameters jsontext.Value // an object; nil is {}
}

// ProxyLLM is a model behind the LLM proxy: each attempt calls it under a URL
// of its own, so that the proxy knows whose call it records.
type ProxyLLM struct {
	LLM
}

// PromptEngine names the template language of a [PromptTemplate].
type PromptEngine string

// The template languages.
const (
	PromptJinja   PromptEngine = "jinja"
	PromptFString PromptEngine = "f-string"
	PromptPOML    PromptEngine = "poml"
)

func promptEngines() []PromptEngine { return []PromptEngine{PromptJinja, PromptFString, PromptPOML} }

// PromptTemplate is a prompt with placeholders.
type PromptTemplate struct {
	Template string
	Engine   PromptEngine
}

// ResourceType returns ResourceLLM.
func (LLM) ResourceType() ResourceType { return ResourceLLM }

// ResourceType returns ResourceProxyLLM.
func (ProxyLLM) ResourceType() ResourceType { return ResourceProxyLLM }

// ResourceType returns ResourcePromptTemplate.
func (PromptTemplate) ResourceType() ResourceType { return ResourcePromptTemplate }

// BaseURL returns the base URL for the calls of one attempt: the endpoint with
// /rollout/{rollout}/attempt/{attempt} before its final /v1, if it has one.
// With both ids empty it is the endpoint itself; one without the other is an
// error.
func (p ProxyLLM) BaseURL(rolloutID, attemptID string) (string, error) {
	if rolloutID == "" && attemptID == "" {
		return p.Endpoint, nil
	}
	if rolloutID == "" || attemptID == "" {
		return "", Errorf(CodeInvalid, "rollout_id %q and attempt_id %q: give both or neither", rolloutID, attemptID)
	}
	base, v1 := strings.CutSuffix(strings.TrimRight(p.Endpoint, "/"), "/v1")
	base += "/rollout/" + url.PathEscape(rolloutID) + "/attempt/" + url.PathEscape(attemptID)
	if v1 {
		base += "/v1"
	}
	return base, nil
}

// ForAttempt returns the plain LLM that the agent of one attempt calls. A run key
// becomes the attempt's own, see [AttemptKey].
func (p ProxyLLM) ForAttempt(rolloutID, attemptID string) (LLM, error) {
	base, err := p.BaseURL(rolloutID, attemptID)
	llm := p.LLM
	llm.Endpoint = base
	if key, ok := runkey.ForAttempt(llm.APIKey.V, rolloutID, attemptID); ok {
		llm.APIKey = Some(key)
	}
	return llm, err
}

// NamedResource is one entry of [Resources].
type NamedResource struct {
	Name     string
	Resource Resource
}

// Resources is a bundle of named resources in the order in which they were
// given: agents take the first one of a type.
type Resources []NamedResource

// Get returns the resource of that name.
func (r Resources) Get(name string) (Resource, bool) {
	for _, n := range r {
		if n.Name == name {
			return n.Resource, true
		}
	}
	return nil, false
}

// LLM returns the first model endpoint of the bundle, a ProxyLLM made the
// attempt's own.
func (r Resources) LLM(rolloutID, attemptID string) (LLM, error) {
	for _, n := range r {
		switch v := n.Resource.(type) {
		case LLM:
			return v, nil
		case ProxyLLM:
			return v.ForAttempt(rolloutID, attemptID)
		}
	}
	return LLM{}, Errorf(CodeNotFound, "the resources hold no llm or proxy_llm, only %s", r.describe())
}

// PromptTemplate returns the first prompt template of the bundle.
func (r Resources) PromptTemplate() (PromptTemplate, error) {
	for _, n := range r {
		if v, ok := n.Resource.(PromptTemplate); ok {
			return v, nil
		}
	}
	return PromptTemplate{}, Errorf(CodeNotFound, "the resources hold no prompt_template, only %s", r.describe())
}

func (r Resources) describe() string {
	if len(r) == 0 {
		return "nothing"
	}
	var parts []string
	for _, n := range r {
		parts = append(parts, fmt.Sprintf("%s (%s)", n.Name, n.Resource.ResourceType()))
	}
	return strings.Join(parts, ", ")
}

// ResourcesUpdate is a version of a resources bundle as the store keeps it.
type ResourcesUpdate struct {
	ResourcesID string
	CreateTime  Timestamp
	UpdateTime  Timestamp
	Version     int // 1 when created, one more with each update
	Resources   Resources
}

// AppendJSON appends the wire form.
func (l LLM) AppendJSON(dst []byte) []byte { return l.appendJSON(dst, ResourceLLM) }

// AppendJSON appends the wire form.
func (p ProxyLLM) AppendJSON(dst []byte) []byte { return p.appendJSON(dst, ResourceProxyLLM) }

func (l LLM) appendJSON(dst []byte, kind ResourceType) []byte {
	o := rawjson.NewObject(dst)
	o.String("resource_type", string(kind))
	o.String("endpoint", l.Endpoint)
	o.String("model", l.Model)
	nullString(&o, "api_key", l.APIKey)
	o.Dict("sampling_parameters", l.SamplingParameters)
	return o.End()
}

// AppendJSON appends the wire form.
func (p PromptTemplate) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("resource_type", string(ResourcePromptTemplate))
	o.String("template", p.Template)
	o.String("engine", string(p.Engine))
	return o.End()
}

// MarshalJSON returns the wire form.
func (l LLM) MarshalJSON() ([]byte, error) { return l.AppendJSON(nil), nil }

// MarshalJSON returns the wire form.
func (p ProxyLLM) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// MarshalJSON returns the wire form.
func (p PromptTemplate) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (l *LLM) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, l) }

// UnmarshalJSON reads the wire form.
func (p *ProxyLLM) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, p) }

// UnmarshalJSON reads the wire form.
func (p *PromptTemplate) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, p) }

// UnmarshalJSONFrom reads the wire form.
func (l *LLM) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readAs(dec, l) }

// UnmarshalJSONFrom reads the wire form.
func (p *ProxyLLM) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readAs(dec, p) }

// UnmarshalJSONFrom reads the wire form.
func (p *PromptTemplate) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readAs(dec, p) }

// readAs reads a resource that must be of one type.
func readAs[R Resource](dec *jsontext.Decoder, to *R) error {
	resource, err := readResource(reader(dec), (*to).ResourceType())
	if err == nil {
		*to, _ = resource.(R) // readResource returns the types asked for
	}
	return err
}

// AppendJSON appends the wire form.
func (r Resources) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	for _, n := range r {
		o.AnyKey(n.Name)
		o = n.Resource.AppendJSON(o)
	}
	return o.End()
}

// MarshalJSON returns the wire form.
func (r Resources) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (r *Resources) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, r) }

// UnmarshalJSONFrom reads the wire form. A repeated name keeps its first place
// and its last value, as in a Python dict.
func (r *Resources) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = Resources{}
	in := reader(dec)
	return in.Dict(func(name []byte) error {
		key := string(name)
		resource, err := readResource(in, resourceTypes()...)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(*r, func(n NamedResource) bool { return n.Name == key }); i >= 0 {
			(*r)[i].Resource = resource
			return nil
		}
		*r = append(*r, NamedResource{key, resource})
		return nil
	})
}

// readResource reads a resource of one of the types. The tag may come after the
// fields, so the fields of all types are read first.
func readResource(in rawjson.Reader, types ...ResourceType) (Resource, error) {
	var (
		llm   LLM
		tmpl  PromptTemplate
		kind  ResourceType
		given = map[string]bool{}
	)
	err := in.Object(func(name []byte) error {
		given[string(name)] = true
		switch string(name) {
		case "resource_type":
			return rawjson.Enum(in, &kind, types)
		case "endpoint":
			return in.String(&llm.Endpoint)
		case "model":
			return in.String(&llm.Model)
		case "api_key":
			return llm.APIKey.UnmarshalJSONFrom(in.Decoder)
		case "sampling_parameters":
			return in.RawDict(&llm.SamplingParameters)
		case "template":
			return in.String(&tmpl.Template)
		case "engine":
			return rawjson.Enum(in, &tmpl.Engine, promptEngines())
		default:
			return in.SkipValue()
		}
	})
	if err != nil {
		return nil, err
	}
	if kind == "" {
		return nil, in.Reject(in.StackPointer(), "union_tag_not_found",
			"Unable to extract tag using discriminator 'resource_type', which must be "+rawjson.Quoted(types), nil)
	}
	required := []string{"endpoint", "model"}
	if kind == ResourcePromptTemplate {
		required = []string{"template", "engine"}
	}
	for _, key := range required {
		if !given[key] {
			return nil, in.Missing(key)
		}
	}
	switch kind {
	case ResourceProxyLLM:
		return ProxyLLM{llm}, nil
	case ResourcePromptTemplate:
		return tmpl, nil
	case ResourceLLM:
	}
	return llm, nil
}

// AppendJSON appends the wire form.
func (u *ResourcesUpdate) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("resources_id", u.ResourcesID)
	o.Float("create_time", float64(u.CreateTime))
	o.Float("update_time", float64(u.UpdateTime))
	o.Int("version", int64(u.Version))
	o.Key("resources")
	o = u.Resources.AppendJSON(o)
	return o.End()
}

// MarshalJSON returns the wire form.
func (u ResourcesUpdate) MarshalJSON() ([]byte, error) { return u.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (u *ResourcesUpdate) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, u) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (u *ResourcesUpdate) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*u = ResourcesUpdate{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "resources_id":
			return in.String(&u.ResourcesID)
		case "create_time":
			return rawjson.Float(in, &u.CreateTime)
		case "update_time":
			return rawjson.Float(in, &u.UpdateTime)
		case "version":
			return rawjson.Int(in, &u.Version)
		case "resources":
			return u.Resources.UnmarshalJSONFrom(dec)
		default:
			return dec.SkipValue()
		}
	})
}
