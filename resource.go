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

// ResourceType is the tag of a [Resource] on the wire.
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

// Resource is something that is being tuned: an [LLM], a [ProxyLLM] or a [PromptTemplate].
type Resource interface {
	ResourceType() ResourceType
	AppendJSON(dst []byte) []byte // appends the wire form
}

// LLM is a model endpoint.
type LLM struct {
	Endpoint string // the OpenAI-compatible base URL
	Model    string
	// APIKey may be "env:NAME", which is resolved where the call is made.
	APIKey             Null[string]
	SamplingParameters jsontext.Value // an object; nil is {}
}

// ProxyLLM is a model behind the LLM proxy. Each attempt calls it at a URL of its
// own, which tells the proxy whose call it records.
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

// BaseURL returns the base URL for the calls of one attempt: the endpoint with /rollout/{rollout}/attempt/{attempt} inserted
// before a final /v1, or appended. With both ids empty it is the endpoint itself; with only one it is ErrInvalid.
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

// ForAttempt returns the LLM that the agent of one attempt calls. If the API key
// is that of a run, the agent gets a key that is good for this attempt alone.
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

// Resources is a bundle of named resources in the order in which they were given.
// The order matters: agents use the first resource of a type.
type Resources []NamedResource

// Validate returns ErrInvalid for the first entry that is neither an [LLM] nor a [ProxyLLM] nor a [PromptTemplate], or that has the
// name of an earlier one. A pointer is none of them.
func (r Resources) Validate() error {
	for i, n := range r {
		switch n.Resource.(type) {
		case LLM, ProxyLLM, PromptTemplate:
		default:
			return Errorf(CodeInvalid, "resources.%s: got %T, must be an agl.LLM, agl.ProxyLLM or agl.PromptTemplate", n.Name, n.Resource)
		}
		if _, given := r[:i].Get(n.Name); given {
			return Errorf(CodeInvalid, "resources.%s: given twice, names must differ", n.Name)
		}
	}
	return nil
}

// Get returns the resource of that name.
func (r Resources) Get(name string) (Resource, bool) {
	for _, n := range r {
		if n.Name == name {
			return n.Resource, true
		}
	}
	return nil, false
}

// LLM returns the first model endpoint of the bundle, a ProxyLLM as [ProxyLLM.ForAttempt] returns it. A bundle
// without an endpoint is ErrNotFound.
func (r Resources) LLM(rolloutID, attemptID string) (LLM, error) {
	for _, n := range r {
		switch v := n.Resource.(type) {
		case LLM:
			return v, nil
		case ProxyLLM:
			return v.ForAttempt(rolloutID, attemptID)
		}
	}
	return LLM{}, Errorf(CodeNotFound, "the resources hold no llm or proxy_llm; they hold %s", r.describe())
}

// PromptTemplate returns the first prompt template of the bundle. A bundle without one is ErrNotFound.
func (r Resources) PromptTemplate() (PromptTemplate, error) {
	for _, n := range r {
		if v, ok := n.Resource.(PromptTemplate); ok {
			return v, nil
		}
	}
	return PromptTemplate{}, Errorf(CodeNotFound, "the resources hold no prompt_template; they hold %s", r.describe())
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

// ResourcesUpdate is a version of a bundle, as the store keeps it.
type ResourcesUpdate struct {
	ResourcesID string
	CreateTime  Timestamp
	UpdateTime  Timestamp
	Version     int // 1 at first, one more with each update
	Resources   Resources
}

func (l *LLM) members(w *wireForm) *wireForm {
	w.string("endpoint", &l.Endpoint)
	w.string("model", &l.Model)
	w.nullString("api_key", &l.APIKey)
	w.dict("sampling_parameters", &l.SamplingParameters)
	return w
}

func (p *PromptTemplate) members(w *wireForm) *wireForm {
	w.string("template", &p.Template)
	enum(w, "engine", &p.Engine, promptEngines)
	return w
}

// writeResource returns a form that begins with the tag of a resource.
func writeResource(dst []byte, r Resource) *wireForm {
	w := writeTo(dst)
	w.out.String("resource_type", string(r.ResourceType()))
	return w
}

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

// UnmarshalJSONFrom reads the wire form. A repeated name keeps its first place and its last value, as in a Python dict.
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
	w := wireForm{reading: true, in: in}
	err := in.Object(func(name []byte) error {
		given[string(name)] = true
		return w.read(name, func() {
			enum(&w, "resource_type", &kind, func() []ResourceType { return types })
			llm.members(&w)
			tmpl.members(&w)
		})
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

func (u *ResourcesUpdate) members(w *wireForm) *wireForm {
	w.string("resources_id", &u.ResourcesID)
	w.time("create_time", &u.CreateTime)
	w.time("update_time", &u.UpdateTime)
	integer(w, "version", &u.Version)
	nested(w, "resources", &u.Resources)
	return w
}
