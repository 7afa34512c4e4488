package apo

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// placeholders returns what an edit of the template must preserve, sorted and without duplicates: {name} of an f-string,
// {{ name }} of Jinja and POML, and Jinja's tags. ok is false for an f-string with a brace that belongs to no placeholder,
// which Python's str.format refuses.
func placeholders(t agl.PromptTemplate) (names []string, ok bool) {
	ok = true
	if t.Engine == agl.PromptFString {
		names, ok = fields(t.Template)
	} else {
		names = expressions(t.Template)
	}
	slices.Sort(names)
	return slices.Compact(names), ok
}

// fieldName is a replacement field: a name with attributes and indices, or nothing or a number for an argument by position;
// a conversion and a format may follow (Python's library reference, Format String Syntax).
var fieldName = regexp.MustCompile(`^([\pL\pM\pN_][\pL\pM\pN_.\[\]]*|)(?:![rsa])?(?::[^{}]*)?$`)

func fields(text string) (names []string, ok bool) {
	ok = true
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "{{"), strings.HasPrefix(text[i:], "}}"):
			i++
		case text[i] == '}':
			ok = false
		case text[i] == '{':
			end := strings.IndexAny(text[i+1:], "{}")
			var m []string
			if end >= 0 && text[i+1+end] == '}' {
				m = fieldName.FindStringSubmatch(text[i+1 : i+1+end])
			}
			if m == nil {
				ok = false
				continue
			}
			names = append(names, "{"+m[1]+"}")
			i += 1 + end
		}
	}
	return names, ok
}

var (
	expression = regexp.MustCompile(`(?s)\{\{-?\s*([\pL_][\pL\pN_.]*)?.*?\}\}`)
	tag        = regexp.MustCompile(`(?s)\{%[-+]?\s*(.*?)\s*[-+]?%\}`)
	comment    = regexp.MustCompile(`(?s)\{#.*?#\}`)
)

func expressions(text string) []string {
	text = comment.ReplaceAllString(text, "")
	var names []string
	for _, m := range expression.FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			names = append(names, "{{ "+m[1]+" }}")
		}
	}
	for _, m := range tag.FindAllStringSubmatch(text, -1) {
		names = append(names, "{% "+strings.Join(strings.Fields(m[1]), " ")+" %}")
	}
	return names
}

// refusal returns why a text cannot replace that of a template; empty if it can.
func refusal(old agl.PromptTemplate, text string) string {
	if strings.TrimSpace(text) == "" {
		return "the reply was empty"
	}
	want, wellFormed := placeholders(old)
	got, ok := placeholders(agl.PromptTemplate{Template: text, Engine: old.Engine})
	var lost, added []string
	for _, name := range want {
		if !slices.Contains(got, name) {
			lost = append(lost, name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			added = append(added, name)
		}
	}
	switch {
	case lost != nil:
		return fmt.Sprintf("it lost %s", strings.Join(lost, ", "))
	case !wellFormed: // the old template has such braces, too
		return ""
	case added != nil:
		return fmt.Sprintf("it has %s, which nothing fills in", strings.Join(added, ", "))
	case !ok:
		return "it has a brace that belongs to no placeholder; a literal brace must be doubled"
	}
	return ""
}

// fenced matches a reply that is one code block.
var fenced = regexp.MustCompile("(?s)^```[^\n`]*\n(.*?)\n?```$")

// clean removes what models put around a text: reasoning that the server left in the reply, white space, and a code fence.
func clean(reply string) string {
	reply = strings.TrimSpace(reply)
	// The opening tag may be missing, since many chat templates write it into the prompt. A text that only mentions both tags is kept.
	if before, after, ends := strings.Cut(reply, "</think>"); ends && (strings.HasPrefix(reply, "<think>") || !strings.Contains(before, "<think>")) {
		reply = strings.TrimSpace(after)
	}
	if m := fenced.FindStringSubmatch(reply); m != nil && !strings.Contains(m[1], "```") {
		reply = strings.TrimSpace(m[1])
	}
	return reply
}
