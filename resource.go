package agl

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
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
	JSONAppender
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
	if key, ok := AttemptKey(llm.APIKey.V, rolloutID, attemptID); ok {
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
	dst = append(dst, `{"resource_type":`...)
	dst = appendString(dst, string(kind))
	dst = append(dst, `,"endpoint":`...)
	dst = appendString(dst, l.Endpoint)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, l.Model)
	dst = append(dst, `,"api_key":`...)
	dst = appendNullString(dst, l.APIKey)
	dst = append(dst, `,"sampling_parameters":`...)
	dst = appendRaw(dst, l.SamplingParameters, "{}")
	return append(dst, '}')
}

// AppendJSON appends the wire form.
func (p PromptTemplate) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"resource_type":"prompt_template","template":`...)
	dst = appendString(dst, p.Template)
	dst = append(dst, `,"engine":`...)
	dst = appendString(dst, string(p.Engine))
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (l LLM) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, l) }

// MarshalJSONTo writes the wire form.
func (p ProxyLLM) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, p) }

// MarshalJSONTo writes the wire form.
func (p PromptTemplate) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, p) }

// AppendJSON appends the wire form.
func (r Resources) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, n := range r {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, n.Name)
		dst = append(dst, ':')
		dst = n.Resource.AppendJSON(dst)
	}
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (r Resources) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, r) }

// UnmarshalJSONFrom reads the wire form. A repeated name keeps its first place
// and its last value, as a Python dict does.
func (r *Resources) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = Resources{}
	return decodeObject(dec, func(name []byte) error {
		key := string(name)
		res, err := readResource(dec)
		if err != nil {
			return err
		}
		for i := range *r {
			if (*r)[i].Name == key {
				(*r)[i].Resource = res
				return nil
			}
		}
		*r = append(*r, NamedResource{key, res})
		return nil
	})
}

// readResource reads one resource; the tag may stand anywhere in the object,
// so fields of all types are gathered first.
func readResource(dec *jsontext.Decoder) (Resource, error) {
	if dec.PeekKind() != '{' {
		return nil, rejectValue(dec, "model_attributes_type", "Input should be a valid dictionary")
	}
	var (
		llm   LLM
		tmpl  PromptTemplate
		kind  Null[ResourceType]
		given = map[string]bool{}
	)
	err := decodeObject(dec, func(name []byte) error {
		key := string(name)
		given[key] = true
		switch key {
		case "resource_type":
			kind.Valid = true
			return readEnum(dec, &kind.V, resourceTypes())
		case "endpoint":
			return readString(dec, &llm.Endpoint)
		case "model":
			return readString(dec, &llm.Model)
		case "api_key":
			return readNullString(dec, &llm.APIKey)
		case "sampling_parameters":
			return readRawObject(dec, &llm.SamplingParameters, false)
		case "template":
			return readString(dec, &tmpl.Template)
		case "engine":
			return readEnum(dec, &tmpl.Engine, promptEngines())
		default:
			return dec.SkipValue()
		}
	})
	if err != nil {
		return nil, err
	}
	if !kind.Valid {
		return nil, &FieldError{
			Pointer: dec.StackPointer(), Type: "union_tag_not_found",
			Message: "Unable to extract tag using discriminator 'resource_type', which must be " + quotedList(resourceTypes()),
		}
	}
	required := []string{"endpoint", "model"}
	if kind.V == ResourcePromptTemplate {
		required = []string{"template", "engine"}
	}
	for _, key := range required {
		if !given[key] {
			return nil, missingField(dec, key)
		}
	}
	switch kind.V {
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
	dst = append(dst, `{"resources_id":`...)
	dst = appendString(dst, u.ResourcesID)
	dst = append(dst, `,"create_time":`...)
	dst = appendFloat(dst, float64(u.CreateTime))
	dst = append(dst, `,"update_time":`...)
	dst = appendFloat(dst, float64(u.UpdateTime))
	dst = append(dst, `,"version":`...)
	dst = appendInt(dst, u.Version)
	dst = append(dst, `,"resources":`...)
	dst = u.Resources.AppendJSON(dst)
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (u *ResourcesUpdate) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, u) }

// UnmarshalJSONFrom reads the wire form.
func (u *ResourcesUpdate) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*u = ResourcesUpdate{}
	return decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "resources_id":
			return readString(dec, &u.ResourcesID)
		case "create_time":
			return readFloat(dec, &u.CreateTime)
		case "update_time":
			return readFloat(dec, &u.UpdateTime)
		case "version":
			return readInt(dec, &u.Version)
		case "resources":
			return u.Resources.UnmarshalJSONFrom(dec)
		default:
			return dec.SkipValue()
		}
	})
}
