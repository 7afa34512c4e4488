package prompt_test

import (
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/prompt"
)

func TestRender(t *testing.T) {
	t.Parallel()
	vars := map[string]any{"question": "2+2?", "n": 3, "names": []any{"a", "b"}, "who": map[string]any{"name": "Ada"}}
	for _, c := range []struct {
		engine         agl.PromptEngine
		template, want string
		err            string
	}{
		{agl.PromptFString, "Answer {question} in {n} words. {{ok}} {names[1]} {who[name]:>5}", "Answer 2+2? in 3 words. {ok} b   Ada", ""},
		{agl.PromptFString, "{missing}", "", "KeyError: 'missing'"},
		{agl.PromptFString, "{question", "", "expected '}'"},
		{agl.PromptFString, "{{% if %}}", "{% if %}", ""},
		{agl.PromptJinja, "{% for x in names %}\n- {{ x }}\n{% endfor %}\n{{ question }}", "- a\n- b\n2+2?", ""},
		{agl.PromptJinja, "{{ missing.x }}", "", "'missing' is undefined"},
		{agl.PromptJinja, "{% if %}", "", "syntax error"},
		{agl.PromptPOML, "<p/>", "", `"poml" cannot be rendered here`},
	} {
		got, err := prompt.Render(agl.PromptTemplate{Template: c.template, Engine: c.engine}, vars)
		if c.err != "" {
			if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.template, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.template, got, err, c.want)
		}
	}
}
