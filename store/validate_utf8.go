package store

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Strings that are not valid UTF-8 are refused: most readers could not read the page
// that one is on.

func errUTF8(field, value string) error {
	return agl.Errorf(agl.CodeInvalid, "%s: got %.100q, must be valid UTF-8", field, value)
}

// checkUTF8 checks the strings and keys of a JSON document. The error names the member
// by its place in field.
func checkUTF8(field string, raw []byte) error {
	if utf8.Valid(raw) {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	for {
		_, err := dec.ReadToken()
		if bad, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			rest := raw[min(int64(len(raw)), dec.InputOffset()):]
			return errUTF8(strings.TrimPrefix(field+string(bad.JSONPointer), "/"), string(rest))
		}
		if err != nil {
			return errUTF8(field, string(raw))
		}
	}
}

// replacement is what a wire form contains for each invalid byte of a Go string.
const replacement = string(utf8.RuneError)

// checkTexts returns an error for the first string that is not valid UTF-8.
func checkTexts(texts []givenText) error {
	for _, given := range texts {
		if !utf8.ValidString(given.text) {
			return errUTF8(given.field, given.text)
		}
	}
	return nil
}

// checkSpanUTF8 checks all strings of a span, given its wire form.
func checkSpanUTF8(s *agl.Span, payload []byte) error {
	if err := checkUTF8("", payload); err != nil {
		return err
	}
	if !bytes.Contains(payload, []byte(replacement)) {
		return nil
	}
	texts := []givenText{
		{"rollout_id", s.RolloutID}, {"attempt_id", s.AttemptID}, {"trace_id", s.TraceID}, {"span_id", s.SpanID}, {"parent_id", s.ParentID.V},
		{"name", s.Name}, {"status/status_code", string(s.Status.Code)}, {"status/description", s.Status.Description.V},
		{"resource/schema_url", s.Resource.SchemaURL},
	}
	add := func(field string, c *agl.SpanContext) {
		if c != nil {
			texts = append(texts, givenText{field + "/trace_id", c.TraceID}, givenText{field + "/span_id", c.SpanID})
		}
	}
	add("context", s.Context)
	add("parent", s.Parent)
	for i := range s.Events {
		texts = append(texts, givenText{"events/" + strconv.Itoa(i) + "/name", s.Events[i].Name})
	}
	for i := range s.Links {
		add("links/"+strconv.Itoa(i)+"/context", &s.Links[i].Context)
	}
	return checkTexts(texts)
}

// checkResourcesUTF8 checks all strings of a bundle.
func checkResourcesUTF8(resources agl.Resources) error {
	doc := resources.AppendJSON(nil)
	if err := checkUTF8("resources", doc); err != nil {
		return err
	}
	if !bytes.Contains(doc, []byte(replacement)) {
		return nil
	}
	for _, n := range resources {
		texts := []givenText{{"resources", n.Name}}
		at := "resources/" + n.Name
		switch r := n.Resource.(type) {
		case agl.LLM:
			texts = append(texts, llmTexts(at, &r)...)
		case agl.ProxyLLM:
			texts = append(texts, llmTexts(at, &r.LLM)...)
		case agl.PromptTemplate:
			texts = append(texts, givenText{at + "/template", r.Template}, givenText{at + "/engine", string(r.Engine)})
		}
		if err := checkTexts(texts); err != nil {
			return err
		}
	}
	return nil
}

func llmTexts(at string, l *agl.LLM) []givenText {
	return []givenText{{at + "/endpoint", l.Endpoint}, {at + "/model", l.Model}, {at + "/api_key", l.APIKey.V}}
}
