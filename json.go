//nolint:revive // the methods of all nouns do the same, as said below
package agl

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// The nouns read and write their wire forms by the same methods. AppendJSON appends the exact form. MarshalJSON and
// UnmarshalJSON serve encoding/json, and UnmarshalJSONFrom serves the v2 library; what they reject is a [FieldError].
// Unknown keys are ignored, unless the noun has a field Extra for them.

func readDoc(doc []byte, v interface {
	UnmarshalJSONFrom(dec *jsontext.Decoder) error
},
) error {
	return v.UnmarshalJSONFrom(rawjson.NewDecoder(doc))
}

func (c RolloutConfig) AppendJSON(dst []byte) []byte    { return c.members(writeTo(dst)).end() }
func (c RolloutConfig) MarshalJSON() ([]byte, error)    { return c.AppendJSON(nil), nil }
func (c *RolloutConfig) UnmarshalJSON(doc []byte) error { return readDoc(doc, c) }
func (c *RolloutConfig) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	err := readNoun(dec, c)
	*c = c.WithDefaults()
	return err
}

func (r *Rollout) AppendJSON(dst []byte) []byte                  { return r.members(writeTo(dst)).end() }
func (r Rollout) MarshalJSON() ([]byte, error)                   { return r.AppendJSON(nil), nil }
func (r *Rollout) UnmarshalJSON(doc []byte) error                { return readDoc(doc, r) }
func (r *Rollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, r) }

func (r *AttemptedRollout) AppendJSON(dst []byte) []byte                  { return r.members(writeTo(dst)).end() }
func (r AttemptedRollout) MarshalJSON() ([]byte, error)                   { return r.AppendJSON(nil), nil }
func (r *AttemptedRollout) UnmarshalJSON(doc []byte) error                { return readDoc(doc, r) }
func (r *AttemptedRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, r) }

func (r *EnqueueRollout) AppendJSON(dst []byte) []byte   { return r.members(writeTo(dst)).end() }
func (r EnqueueRollout) MarshalJSON() ([]byte, error)    { return r.AppendJSON(nil), nil }
func (r *EnqueueRollout) UnmarshalJSON(doc []byte) error { return readDoc(doc, r) }
func (r *EnqueueRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, r, "input")
}

func (a *Attempt) AppendJSON(dst []byte) []byte                  { return a.members(writeTo(dst)).end() }
func (a Attempt) MarshalJSON() ([]byte, error)                   { return a.AppendJSON(nil), nil }
func (a *Attempt) UnmarshalJSON(doc []byte) error                { return readDoc(doc, a) }
func (a *Attempt) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, a) }

func (r *AttemptReward) AppendJSON(dst []byte) []byte                  { return r.members(writeTo(dst)).end() }
func (r AttemptReward) MarshalJSON() ([]byte, error)                   { return r.AppendJSON(nil), nil }
func (r *AttemptReward) UnmarshalJSON(doc []byte) error                { return readDoc(doc, r) }
func (r *AttemptReward) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, r) }

func (o Outcome) AppendJSON(dst []byte) []byte                   { return o.members(writeTo(dst)).end() }
func (o Outcome) MarshalJSON() ([]byte, error)                   { return o.AppendJSON(nil), nil }
func (o *Outcome) UnmarshalJSON(doc []byte) error                { return readDoc(doc, o) }
func (o *Outcome) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, o) }

func (s *Span) AppendJSON(dst []byte) []byte   { return s.members(writeTo(dst)).end() }
func (s Span) MarshalJSON() ([]byte, error)    { return s.AppendJSON(nil), nil }
func (s *Span) UnmarshalJSON(doc []byte) error { return readDoc(doc, s) }
func (s *Span) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, s,
		"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "status",
		"attributes", "events", "links", "start_time", "end_time", "context", "parent", "resource")
}

func (s *SpanStatus) AppendJSON(dst []byte) []byte   { return s.members(writeTo(dst)).end() }
func (s SpanStatus) MarshalJSON() ([]byte, error)    { return s.AppendJSON(nil), nil }
func (s *SpanStatus) UnmarshalJSON(doc []byte) error { return readDoc(doc, s) }
func (s *SpanStatus) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, s, "status_code")
}

func (e *SpanEvent) AppendJSON(dst []byte) []byte   { return e.members(writeTo(dst)).end() }
func (e SpanEvent) MarshalJSON() ([]byte, error)    { return e.AppendJSON(nil), nil }
func (e *SpanEvent) UnmarshalJSON(doc []byte) error { return readDoc(doc, e) }
func (e *SpanEvent) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, e, "name", "attributes")
}

func (l *SpanLink) AppendJSON(dst []byte) []byte                  { return l.members(writeTo(dst)).end() }
func (l SpanLink) MarshalJSON() ([]byte, error)                   { return l.AppendJSON(nil), nil }
func (l *SpanLink) UnmarshalJSON(doc []byte) error                { return readDoc(doc, l) }
func (l *SpanLink) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, l, "context") }

func (c *SpanContext) AppendJSON(dst []byte) []byte   { return c.members(writeTo(dst)).end() }
func (c SpanContext) MarshalJSON() ([]byte, error)    { return c.AppendJSON(nil), nil }
func (c *SpanContext) UnmarshalJSON(doc []byte) error { return readDoc(doc, c) }
func (c *SpanContext) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, c, "trace_id", "span_id", "is_remote", "trace_state")
}

func (r *SpanResource) AppendJSON(dst []byte) []byte   { return r.members(writeTo(dst)).end() }
func (r SpanResource) MarshalJSON() ([]byte, error)    { return r.AppendJSON(nil), nil }
func (r *SpanResource) UnmarshalJSON(doc []byte) error { return readDoc(doc, r) }
func (r *SpanResource) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, r, "attributes", "schema_url")
}

func (l LLM) AppendJSON(dst []byte) []byte                   { return l.members(writeResource(dst, l)).end() }
func (l LLM) MarshalJSON() ([]byte, error)                   { return l.AppendJSON(nil), nil }
func (l *LLM) UnmarshalJSON(doc []byte) error                { return readDoc(doc, l) }
func (l *LLM) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readAs(dec, l) }

func (p ProxyLLM) AppendJSON(dst []byte) []byte                   { return p.members(writeResource(dst, p)).end() }
func (p ProxyLLM) MarshalJSON() ([]byte, error)                   { return p.AppendJSON(nil), nil }
func (p *ProxyLLM) UnmarshalJSON(doc []byte) error                { return readDoc(doc, p) }
func (p *ProxyLLM) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readAs(dec, p) }

func (p PromptTemplate) AppendJSON(dst []byte) []byte                   { return p.members(writeResource(dst, p)).end() }
func (p PromptTemplate) MarshalJSON() ([]byte, error)                   { return p.AppendJSON(nil), nil }
func (p *PromptTemplate) UnmarshalJSON(doc []byte) error                { return readDoc(doc, p) }
func (p *PromptTemplate) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readAs(dec, p) }

func (r Resources) MarshalJSON() ([]byte, error)    { return r.AppendJSON(nil), nil }
func (r *Resources) UnmarshalJSON(doc []byte) error { return readDoc(doc, r) }

func (u *ResourcesUpdate) AppendJSON(dst []byte) []byte                  { return u.members(writeTo(dst)).end() }
func (u ResourcesUpdate) MarshalJSON() ([]byte, error)                   { return u.AppendJSON(nil), nil }
func (u *ResourcesUpdate) UnmarshalJSON(doc []byte) error                { return readDoc(doc, u) }
func (u *ResourcesUpdate) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, u) }

func (k *Worker) AppendJSON(dst []byte) []byte                  { return k.members(writeTo(dst)).end() }
func (k Worker) MarshalJSON() ([]byte, error)                   { return k.AppendJSON(nil), nil }
func (k *Worker) UnmarshalJSON(doc []byte) error                { return readDoc(doc, k) }
func (k *Worker) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, k) }

func (d *Document) AppendJSON(dst []byte) []byte   { return d.members(writeTo(dst)).end() }
func (d Document) MarshalJSON() ([]byte, error)    { return d.AppendJSON(nil), nil }
func (d *Document) UnmarshalJSON(doc []byte) error { return readDoc(doc, d) }
func (d *Document) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, d, "kind", "id", "body")
}

func (s *Statistics) AppendJSON(dst []byte) []byte                  { return s.members(writeTo(dst)).end() }
func (s Statistics) MarshalJSON() ([]byte, error)                   { return s.AppendJSON(nil), nil }
func (s *Statistics) UnmarshalJSON(doc []byte) error                { return readDoc(doc, s) }
func (s *Statistics) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, s) }

func (e *Event) AppendJSON(dst []byte) []byte                  { return e.members(writeTo(dst)).end() }
func (e Event) MarshalJSON() ([]byte, error)                   { return e.AppendJSON(nil), nil }
func (e *Event) UnmarshalJSON(doc []byte) error                { return readDoc(doc, e) }
func (e *Event) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, e) }

func (r *AddedReward) AppendJSON(dst []byte) []byte   { return r.members(writeTo(dst)).end() }
func (r AddedReward) MarshalJSON() ([]byte, error)    { return r.AppendJSON(nil), nil }
func (r *AddedReward) UnmarshalJSON(doc []byte) error { return readDoc(doc, r) }
func (r *AddedReward) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readNoun(dec, r, "rollout_id", "attempt_id", "span_id", "sequence_id")
}

func (r *Run) AppendJSON(dst []byte) []byte                  { return r.members(writeTo(dst)).end() }
func (r Run) MarshalJSON() ([]byte, error)                   { return r.AppendJSON(nil), nil }
func (r *Run) UnmarshalJSON(doc []byte) error                { return readDoc(doc, r) }
func (r *Run) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, r, "run_id") }

func (m *RunMetrics) AppendJSON(dst []byte) []byte                  { return m.members(writeTo(dst)).end() }
func (m RunMetrics) MarshalJSON() ([]byte, error)                   { return m.AppendJSON(nil), nil }
func (m *RunMetrics) UnmarshalJSON(doc []byte) error                { return readDoc(doc, m) }
func (m *RunMetrics) UnmarshalJSONFrom(dec *jsontext.Decoder) error { return readNoun(dec, m, "step") }
