package apo

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/rawjson"
)

var (
	//go:embed prompts/critique-chat.txt
	critiqueChat string
	//go:embed prompts/critique-spans.txt
	critiqueSpans string
	//go:embed prompts/critique-review.txt
	critiqueReview string
	//go:embed prompts/edit-free.txt
	editFree string
	//go:embed prompts/edit-conservative.txt
	editConservative string
)

// DefaultCritiquePrompts returns the built-in requests for a critique: a short one
// of chat messages, a short one of spans, and a long review.
func DefaultCritiquePrompts() []string { return []string{critiqueChat, critiqueSpans, critiqueReview} }

// DefaultEditPrompts returns the built-in requests for an edit: a free rewrite, and an edit that changes one thing.
func DefaultEditPrompts() []string { return []string{editFree, editConservative} }

// CritiqueData is the data of a request for a critique.
type CritiqueData struct {
	Name         string   // of the template in the bundle
	Prompt       string   // the template's text
	Placeholders []string // in the template, as they are written
	// Others are the other templates of the bundle.
	Others      []NamedPrompt
	Experiments []Experiment
}

// NamedPrompt is a prompt template and its name.
type NamedPrompt struct {
	Name, Prompt string
}

// Experiment is a rollout with the prompt.
type Experiment struct {
	Number   int     // from 1
	Task     string  // its input, JSON
	Status   string  // succeeded or failed
	Message  string  // the error of the agent, if it failed
	Reward   float64 // the final reward
	Messages string  // the chats, one line per message; empty if none is recorded
	Spans    string  // the spans, one line each
}

// EditData is the data of a request for an edit.
type EditData struct {
	Name         string
	Prompt       string
	Placeholders []string
	Critique     string
	// Refused is why the previous reply could not be used; empty in the first request.
	Refused string
}

// parseRequests parses requests and renders each once, with the data given.
func parseRequests(field string, texts []string, data any) ([]*template.Template, error) {
	out := make([]*template.Template, len(texts))
	for i, text := range texts {
		var err error
		out[i], err = template.New(fmt.Sprintf("%s[%d]", field, i)).Parse(text)
		if err == nil {
			_, err = render(out[i], data)
		}
		if err != nil {
			return nil, invalid("%s: %w", field, err)
		}
	}
	return out, nil
}

func render(t *template.Template, data any) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}

// experiment describes a rollout that has a score.
func experiment(e *algorithm.Episode, number int, reward float64, most int) Experiment {
	out := Experiment{
		Number: number, Task: shorten(rawjson.Readable(e.Rollout.Input), most), Status: string(e.Rollout.Status),
		Message: shorten(e.Outcome.Message, most), Reward: reward,
	}
	var spans strings.Builder
	recorded := slices.ContainsFunc(e.Spans, func(s agl.Span) bool { return s.Name == agl.SpanLiteLLMRequest })
	for i := range e.Spans {
		s := &e.Spans[i]
		switch {
		case s.Name == agl.SpanRawRequest && recorded: // says the same again
		case s.Name == e.Rollout.RolloutID:
			fmt.Fprintf(&spans, "rollout %s %s\n", s.Status.Code, attributes(s))
		default:
			fmt.Fprintf(&spans, "%s %s %s\n", s.Name, s.Status.Code, attributes(s))
		}
	}
	out.Spans = shorten(strings.TrimSpace(spans.String()), most)
	// Without a readable chat the messages stay empty; the spans have the content.
	if chats, err := adapter.Conversations(e.Spans); err == nil {
		var lines strings.Builder
		for _, chat := range chats {
			for _, m := range chat.Messages {
				lines.WriteString(messageLine(m))
			}
		}
		out.Messages = shorten(strings.TrimSpace(lines.String()), most)
	}
	return out
}

// attributes returns the attributes of a span as JSON. It leaves out token ids and log-probabilities, which would take most of the room, and
// the reply's id and times, which differ in every run.
func attributes(s *agl.Span) string {
	o := rawjson.NewObject(nil)
	for name, value := range rawjson.Members(s.Attributes) {
		switch key := rawjson.UnquoteName(name); key {
		case agl.AttrPromptTokenIDs, agl.AttrResponseTokenIDs, agl.AttrLogprobsContent, agl.AttrLogprobsRefusal, agl.AttrGenAIResponseID:
		default:
			if !strings.HasPrefix(key, "agentlightning.proxy.") || !strings.HasSuffix(key, "_seconds") {
				o.Member(name, value)
			}
		}
	}
	return rawjson.Readable(o.End())
}

// messageLine writes a message for a reader.
func messageLine(m adapter.Message) string {
	var text string
	if err := json.Unmarshal(m.Content, &text); err != nil {
		text = rawjson.Readable(m.Content) // parts, or null
	}
	for _, call := range m.ToolCalls {
		text += fmt.Sprintf(" [calls %s(%s)]", call.Function.Name, rawjson.Readable(jsontext.Value(call.Function.Arguments)))
	}
	return m.Role + ": " + text + "\n"
}

// shorten leaves out the middle of a text that is longer than most bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	head, tail := most/2, len(text)-most/2
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n… %d bytes left out …\n%s", text[:head], tail-head, text[tail:])
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "apo: "+format, args...)
}
