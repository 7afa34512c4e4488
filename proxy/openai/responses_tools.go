package openai

import (
	"fmt"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

// responsesTool is a function, a tool that takes text instead of arguments (custom), or a list of such tools under a name (namespace).
type responsesTool struct {
	Type        string           `json:"type"`
	Name        jsontext.Value   `json:"name,omitzero"`
	Description jsontext.Value   `json:"description,omitzero"`
	Parameters  jsontext.Value   `json:"parameters,omitzero"`
	Strict      jsontext.Value   `json:"strict,omitzero"`
	Format      *responsesSyntax `json:"format,omitzero"`    // of custom
	Tools       []responsesTool  `json:"tools,omitempty"`    // of namespace
	Namespace   jsontext.Value   `json:"namespace,omitzero"` // of a tool that must be called
}

// responsesSyntax is the form of the text that a tool takes.
type responsesSyntax struct {
	Type       string         `json:"type"` // text or grammar
	Syntax     jsontext.Value `json:"syntax,omitzero"`
	Definition jsontext.Value `json:"definition,omitzero"`
}

// textArgument is the argument of the function that stands for a tool that takes text.
const textArgument = "input"

// functions are the functions of a chat completion by name, with the tools that they stand for. Chat Completions has neither
// namespaces, whose names therefore become part of the functions' names, nor, at engines, tools that take text.
type functions map[string]*responsesTool

// add adds the function for a tool to a request.
func (f functions) add(out *ChatRequest, t *responsesTool, at string) error {
	function := ChatFunction{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
	switch t.Type {
	case "function":
	case "custom":
		parameters, err := textParameters(t.Format)
		if err != nil {
			return err
		}
		function.Parameters, function.Strict = parameters, nil
	default:
		return Unsupported(at+".type", "got %q, must be function, custom or namespace for this backend", t.Type)
	}
	renamed := t.Type == "custom"
	if t.Namespace != nil {
		function.Name, renamed = functionName(t.Namespace, t.Name), true
	}
	name := Unquote(function.Name)
	if other, taken := f[name]; taken && (renamed || other.Type == "custom" || other.Namespace != nil) {
		return Unsupported(at+".name", "got %s: another tool has the same name for this backend, which has only functions", t.Name)
	}
	f[name] = t
	out.Tools = append(out.Tools, ChatTool{Type: "function", Function: &function})
	return nil
}

// addAll adds the functions for all tools of a request.
func (f functions) addAll(out *ChatRequest, tools []responsesTool) error {
	for i := range tools {
		t, at := &tools[i], fmt.Sprintf("tools[%d]", i)
		if t.Type != "namespace" {
			if err := f.add(out, t, at); err != nil {
				return err
			}
			continue
		}
		if !IsText(t.Name) {
			return Unsupported(at+".name", "a namespace needs a name")
		}
		for j, member := range t.Tools {
			member.Namespace = t.Name
			if IsText(t.Description) && IsText(member.Description) {
				member.Description = Join(Join(t.Description, jsontext.Value(`"\n\n"`)), member.Description)
			}
			if err := f.add(out, &member, fmt.Sprintf("%s.tools[%d]", at, j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// functionName returns the name of the function for a tool of a namespace, or for one without.
func functionName(namespace, name jsontext.Value) jsontext.Value {
	if !IsText(namespace) {
		return name
	}
	return Join(Join(namespace, jsontext.Value(`"__"`)), name)
}

// textParameters returns the schema of a function that stands for a tool that takes text. A grammar becomes part of the
// description, because an engine cannot enforce it for one function of several.
func textParameters(format *responsesSyntax) (jsontext.Value, error) {
	type property struct {
		Type        string         `json:"type"`
		Description jsontext.Value `json:"description,omitzero"`
	}
	text := property{Type: "string"}
	if format != nil && IsText(format.Definition) {
		text.Description = Join(Quote("Text that follows this "+strings.TrimSpace(Unquote(format.Syntax)+" grammar")+":\n"), format.Definition)
	}
	return AppendWire(nil, struct {
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
		Additional bool                `json:"additionalProperties"`
	}{"object", map[string]property{textArgument: text}, []string{textArgument}, false})
}

// argumentsOf returns the arguments of the function that stands for a tool that takes text. They are spelled with a space, as
// models and chat templates do, so that the next prompt repeats what the model said.
func argumentsOf(text jsontext.Value) jsontext.Value {
	return Quote(`{"` + textArgument + `": ` + string(orNull(text)) + "}")
}

// textOf returns the text in the arguments of the function that stands for a tool that takes text. Other arguments, such as
// those of a call that was cut, are the text themselves.
func textOf(arguments jsontext.Value) jsontext.Value {
	var found map[string]jsontext.Value
	err := rawjson.Unmarshal([]byte(Unquote(arguments)), &found)
	if text := found[textArgument]; err == nil && len(found) == 1 && text.Kind() == '"' {
		return text
	}
	return arguments
}
