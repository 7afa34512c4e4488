package apo

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		engine agl.PromptEngine
		text   string
		want   []string
		ok     bool
	}{
		{agl.PromptFString, "Answer {question} by {date:%Y} in {a.b[0]!r:>10}, {question}.", []string{"{a.b[0]}", "{date}", "{question}"}, true},
		{agl.PromptFString, `Reply {{"a": 1}} to {} and {0}`, []string{"{0}", "{}"}, true},
		{agl.PromptFString, `Reply {"a": 1} to {q}`, []string{"{q}"}, false},
		{agl.PromptFString, "open { and {q}", []string{"{q}"}, false},
		{agl.PromptFString, "closed } and {q}", []string{"{q}"}, false},
		{agl.PromptFString, "plain", nil, true},
		{agl.PromptFString, "{问题} und {größe:>8}", []string{"{größe}", "{问题}"}, true},
		{agl.PromptJinja, "{{ user.name }} {{-x|upper-}} {# {{ no }} #} {% for t in  tools -%}{{t}}{% endfor %} {{ 'a' }}",
			[]string{"{% endfor %}", "{% for t in tools %}", "{{ t }}", "{{ user.name }}", "{{ x }}"}, true},
		{agl.PromptPOML, "<p>{{ task }}</p>", []string{"{{ task }}"}, true},
	} {
		got, ok := placeholders(agl.PromptTemplate{Template: tt.text, Engine: tt.engine})
		if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
			t.Errorf("%s: well-formed %t, want %t; placeholders (-want +got):\n%s", tt.text, ok, tt.ok, diff)
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ old, text, want string }{
		{"Answer {q}", "Think. {q}", ""},
		{"Answer {q}", "Think.", "it lost {q}"},
		{"回答 {问题}", "想一想", "it lost {问题}"},
		{"Answer {q}", " \n", "the reply was empty"},
		{"Answer {q}", "{q} {r} {s}", "it has {r}, {s}, which nothing fills in"},
		{"Answer {q}", `{q} as {"a": 1}`, "it has a brace that belongs to no placeholder; a literal brace must be doubled"},
		{"Answer {q}", `{q} as {{"a": 1}}`, ""},
		{`{q} as {"a": 1}`, `{q} as {"b": 1}`, ""}, // the agent fills it in by its own rules
		{`{q} as {"a": 1}`, `as {"b": 1}`, "it lost {q}"},
	} {
		if got := refusal(agl.PromptTemplate{Template: tt.old, Engine: agl.PromptFString}, tt.text); got != tt.want {
			t.Errorf("%q for %q: got %q, want %q", tt.text, tt.old, got, tt.want)
		}
	}
}

func FuzzPlaceholders(f *testing.F) {
	for _, s := range []string{"{a}", "{{a}}", "{{ a }} {% if b %}", "{", "}", "{a:{b}}", "{#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, engine := range []agl.PromptEngine{agl.PromptFString, agl.PromptJinja} {
			tmpl := agl.PromptTemplate{Template: text, Engine: engine}
			if why := refusal(tmpl, text); why != "" && strings.TrimSpace(text) != "" {
				t.Errorf("%q cannot take its own place: %s", text, why)
			}
		}
	})
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		" a \n":                         "a",
		"```\na\nb\n```":                "a\nb",
		"```text\na\n```\n":             "a",
		"```\n```":                      "",
		"Use ```x``` here":              "Use ```x``` here",
		"```\na\n```\nand\n```\nb\n```": "```\na\n```\nand\n```\nb\n```",
		"<think>\nWhat is {x}?\n</think>\n\na {y}":       "a {y}",
		"What is {x}?\n</think>\n\n```\na {y}\n```":      "a {y}",
		"<think>a</think>":                               "",
		"Write <think>, reason, and write </think>. {y}": "Write <think>, reason, and write </think>. {y}",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	if got := shorten("abc", 3); got != "abc" {
		t.Errorf("got %q", got)
	}
	if got, want := shorten("ääää ääää", 6), "ä\n… 13 bytes left out …\nä"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func some(values ...float64) []agl.Null[float64] {
	out := make([]agl.Null[float64], len(values))
	for i, v := range values {
		if !math.IsNaN(v) {
			out[i] = agl.Some(v)
		}
	}
	return out
}

// TestPairedGain compares with the normal interval, to which the bootstrap's
// comes close for many pairs.
func TestPairedGain(t *testing.T) {
	t.Parallel()
	const n = 400
	r := rand.New(rand.NewPCG(1, 2))
	a, b := make([]float64, n), make([]float64, n)
	sum, squares := 0.0, 0.0
	for i := range n {
		a[i] = r.NormFloat64() * 10 // of no effect on the differences
		d := 0.3 + r.NormFloat64()
		b[i] = a[i] + d
		sum += d
		squares += d * d
	}
	mean := sum / n
	se := math.Sqrt((squares/n - mean*mean) / (n - 1))
	g := pairedDifference(some(a...), some(b...), 0.95, 4000, 7)
	const z, tolerance = 1.96, 0.1
	if math.Abs(g.Mean-mean) > 1e-9 || math.Abs(g.Low-(mean-z*se)) > tolerance*se || math.Abs(g.High-(mean+z*se)) > tolerance*se || g.Pairs != n {
		t.Errorf("got %+v, want about %v ± %v", g, mean, z*se)
	}
	if !g.Positive() || g.Tie() {
		t.Errorf("%+v is a gain", g)
	}
	nan := math.NaN()
	few := pairedDifference(some(0, nan, 0, 0, 0, 0, 0), some(1, 1, 1, nan, 1, 1, 1), 0.95, 1000, 7)
	if diff := cmp.Diff(Difference{Mean: 1, Low: 1, High: 1, Level: 0.95, Pairs: 5}, few); diff != "" || few.Positive() || !few.Tie() {
		t.Errorf("five pairs (-want +got):\n%s", diff)
	}
}

// TestStudentRatio compares with tables of both distributions.
func TestStudentRatio(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ p, freedom, student, normal float64 }{
		{0.975, 5, 2.5706, 1.9600}, {0.975, 23, 2.0687, 1.9600}, {0.95, 5, 2.0150, 1.6449}, {0.95, 30, 1.6973, 1.6449}, {0.995, 10, 3.1693, 2.5758},
	} {
		if got, want := studentRatio(tt.p, tt.freedom), tt.student/tt.normal; math.Abs(got/want-1) > 0.002 {
			t.Errorf("p %v, %v degrees of freedom: got %v, want %v", tt.p, tt.freedom, got, want)
		}
	}
}

// TestStandings: a candidate whose hard task was masked is not ahead by it.
func TestStandings(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	got := relativeScores([][]agl.Null[float64]{
		some(1, 1, 0.1),
		some(1, 0.8, nan),
		some(nan, nan, nan),
	})
	if !got[0].Valid || !got[1].Valid || got[2].Valid || got[0].V <= got[1].V {
		t.Errorf("got %+v; want the first ahead of the second, and none for the third", got)
	}
}

// TestSpansOfExperiment: the spans of a call through the proxy show what was said, not its tokens, nor what differs in every run.
func TestSpansOfExperiment(t *testing.T) {
	t.Parallel()
	call := agl.Attributes(`{"gen_ai.prompt.0.content":"What is 1+1?","gen_ai.response.id":"chatcmpl-1","gen_ai.completion.0.content":"Three.","logprobs.content":"[]",` +
		`"prompt_token_ids":[1,2],"response_token_ids":[3],"agentlightning.proxy.delivered":true,"agentlightning.proxy.total_seconds":0.25}`)
	raw := agl.Attributes(`{"llm.hosted_vllm.choices":"[]"}`)
	episode := algorithm.Episode{
		Rollout: agl.Rollout{RolloutID: "ro-1"},
		Spans: []agl.Span{
			{Name: "ro-1"}, {Name: agl.SpanLiteLLMRequest, Status: agl.SpanStatus{Code: agl.StatusOK}, Attributes: call}, {Name: agl.SpanRawRequest, Attributes: raw},
		},
	}
	const want = "rollout  {}\nlitellm_request OK " +
		`{"gen_ai.prompt.0.content":"What is 1+1?","gen_ai.completion.0.content":"Three.","agentlightning.proxy.delivered":true}`
	if got := experiment(&episode, 1, 0, 1000).Spans; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	episode.Spans = episode.Spans[2:] // of a proxy that records nothing else
	if got, want := experiment(&episode, 1, 0, 1000).Spans, `raw_gen_ai_request  {"llm.hosted_vllm.choices":"[]"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestMessagesOfExperiment: a conversation of several calls is shown once, with the calls of tools.
func TestMessagesOfExperiment(t *testing.T) {
	t.Parallel()
	const asked = `{"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"1+1?",`
	const called = `.tool_calls.0.id":"c","gen_ai.%[1]s.tool_calls.0.name":"add","gen_ai.%[1]s.tool_calls.0.arguments":"[1,1]"`
	first := asked + `"gen_ai.completion.0.role":"assistant","gen_ai.completion.0` + strings.ReplaceAll(called, "%[1]s", "completion.0") + `}`
	second := asked + `"gen_ai.prompt.1.role":"assistant","gen_ai.prompt.1` + strings.ReplaceAll(called, "%[1]s", "prompt.1") +
		`,"gen_ai.prompt.2.role":"tool","gen_ai.prompt.2.content":"2","gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"Two."}`
	var episode algorithm.Episode
	for i, attrs := range []string{first, second} {
		episode.Spans = append(episode.Spans, agl.Span{SpanID: strconv.Itoa(i), SequenceID: int64(i), Name: agl.SpanLiteLLMRequest, Attributes: agl.Attributes(attrs)})
		want := "user: 1+1?\nassistant:  [calls add([1,1])]" + []string{"", "\ntool: 2\nassistant: Two."}[i]
		if got := experiment(&episode, 1, 0, 1000).Messages; got != want {
			t.Errorf("after call %d: got %q, want %q", i, got, want)
		}
	}
}

// TestLettersOfExperiment: letters that programs such as Python's json escape are shown as letters.
func TestLettersOfExperiment(t *testing.T) {
	t.Parallel()
	attrs := agl.Attributes(`{"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":[{"type":"text","text":"gr\u00f6\u00dfer"}],"gen_ai.completion.0.role":"assistant",` +
		`"gen_ai.completion.0.tool_calls.0.id":"c","gen_ai.completion.0.tool_calls.0.name":"f","gen_ai.completion.0.tool_calls.0.arguments":"{\"n\":\"\\u00fc\"}"}`)
	episode := algorithm.Episode{
		Rollout: agl.Rollout{Input: []byte(`{"q":"gr\u00f6\u00dfer"}`)},
		Spans:   []agl.Span{{SpanID: "a", Name: agl.SpanLiteLLMRequest, Attributes: attrs}},
	}
	e := experiment(&episode, 1, 0, 1000)
	if e.Task != `{"q": "größer"}` || !strings.Contains(e.Spans, `"text": "größer"`) {
		t.Errorf("task %s, spans %s", e.Task, e.Spans)
	}
	if want := `user: [{"type": "text", "text": "größer"}]` + "\nassistant:  [calls f({\"n\": \"ü\"})]"; e.Messages != want {
		t.Errorf("messages %s, want %s", e.Messages, want)
	}
}

// TestDefaultPrompts: each request shows what it is made of.
func TestDefaultPrompts(t *testing.T) {
	t.Parallel()
	attrs, err := agl.NewAttributes(
		agl.Attr{Key: "gen_ai.prompt.0.role", Value: "user"}, agl.Attr{Key: "gen_ai.prompt.0.content", Value: "What is 1+1?"},
		agl.Attr{Key: "gen_ai.completion.0.role", Value: "assistant"}, agl.Attr{Key: "gen_ai.completion.0.content", Value: "Three."},
	)
	if err != nil {
		t.Fatal(err)
	}
	episode := algorithm.Episode{
		Rollout: agl.Rollout{Input: []byte(`{"question":"1+1"}`), Status: agl.RolloutFailed}, Outcome: agl.Outcome{Kind: agl.OutcomeAgentError, Message: "cannot count"},
		Spans: []agl.Span{{SpanID: "a", Name: "openai.chat.completion", Attributes: attrs}},
	}
	data := CritiqueData{
		Name: "main", Prompt: "Add {question}", Placeholders: []string{"{question}"}, Others: []NamedPrompt{{"style", "Be brief"}},
		Experiments: []Experiment{experiment(&episode, 1, 0.25, 1000)},
	}
	if got, want := data.Experiments[0].Messages, "user: What is 1+1?\nassistant: Three."; got != want {
		t.Errorf("messages are %q, want %q", got, want)
	}
	shows := func(field string, texts []string, data any, want [][]string) {
		parsed, err := parseRequests(field, texts, data)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range parsed {
			text, err := render(p, data)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range want[i] {
				if !strings.Contains(text, part) {
					t.Errorf("%s does not show %q:\n%s", p.Name(), part, text)
				}
			}
		}
	}
	common := []string{"Add {question}", `{"question":"1+1"}`, "0.25", "failed", "cannot count"}
	chat := slices.Concat(common, []string{"assistant: Three.", "Be brief"})
	shows("critique", DefaultCritiquePrompts(), data, [][]string{chat, slices.Concat(common, []string{`"gen_ai.completion.0.content":"Three."`}), chat})
	edit := EditData{Name: "main", Prompt: "Add {question}", Placeholders: []string{"{question}"}, Critique: "vague", Refused: "it lost {question}"}
	parts := []string{"Add {question}", "  {question}\n", "vague", "it lost {question}."}
	shows("edit", DefaultEditPrompts(), edit, [][]string{parts, parts})
}
