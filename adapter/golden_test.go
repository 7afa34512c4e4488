package adapter

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// tracerOptions are the reference's names for the fields of TracerTriplets.
type tracerOptions struct {
	Repair      *bool   `json:"repair_hierarchy"`
	CallMatch   *string `json:"llm_call_match"`
	AgentMatch  *string `json:"agent_match"`
	Exclude     *bool   `json:"exclude_llm_call_in_reward"`
	RewardMatch string  `json:"reward_match"`
	SkipEmpty   bool    `json:"_skip_empty_token_spans"`
}

func (o tracerOptions) adapter() TracerTriplets {
	a := TracerTriplets{
		KeepHierarchy:      o.Repair != nil && !*o.Repair,
		IncludeRewardCalls: o.Exclude != nil && !*o.Exclude,
		RewardMatch:        RewardMatch(o.RewardMatch),
		SkipWithoutTokens:  o.SkipEmpty,
	}
	if o.CallMatch != nil {
		a.CallMatch = regexp.MustCompile(*o.CallMatch)
	}
	if o.AgentMatch != nil {
		a.AgentMatch = regexp.MustCompile(*o.AgentMatch)
	}
	return a
}

// goldenCase is a trace with the reference's answers. An answer is a value, or
// an object with the kind of the exception that was raised.
type goldenCase struct {
	Description string
	Spans       []agl.Span
	Tracer      []struct {
		Options tracerOptions
		Want    jsontext.Value
	}
	Tree, Repaired jsontext.Value
	Proxy          jsontext.Value
	Messages       jsontext.Value
	Rewards        []jsontext.Value
	FinalReward    jsontext.Value `json:"final_reward"`
}

func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(files) < 50 {
		t.Fatalf("golden files: got %d, want at least 50 (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var golden goldenCase
			if err := json.Unmarshal(data, &golden, json.MatchCaseInsensitiveNames(true)); err != nil {
				t.Fatal(err)
			}
			golden.check(t)
		})
	}
}

func (g *goldenCase) check(t *testing.T) {
	for _, c := range g.Tracer {
		triplets, err := c.Options.adapter().Adapt(g.Spans)
		checkAnswer(t, fmt.Sprintf("tracer %+v", c.Options), triplets, err, c.Want)
	}
	for _, c := range []struct {
		name   string
		repair bool
		want   jsontext.Value
	}{{"tree", false, g.Tree}, {"repaired", true, g.Repaired}} {
		root, err := buildTree(g.Spans)
		if err == nil && c.repair {
			repair(root)
		}
		checkAnswer(t, c.name, nestedIDs(root), err, c.want)
	}
	triplets, err := ProxyTriplets{}.Adapt(g.Spans)
	checkAnswer(t, "proxy", triplets, err, g.Proxy)
	conversations, err := Messages{Strict: true}.Adapt(g.Spans)
	checkAnswer(t, "messages", conversations, err, g.Messages)
	for i := range g.Spans {
		reward, err := PrimaryReward(&g.Spans[i])
		checkAnswer(t, "reward of "+g.Spans[i].SpanID, reward, err, g.Rewards[i])
	}
	final, err := FinalReward(g.Spans)
	checkAnswer(t, "final reward", final, err, g.FinalReward)
}

// checkAnswer compares an answer with the reference's, as JSON. Where that is an
// exception, ours must be an error of code CodeInvalid.
func checkAnswer(t *testing.T, what string, got any, err error, want jsontext.Value) {
	t.Helper()
	if exception, ok := rawjson.Get(want, "error"); ok {
		if agl.ErrorCode(err) != agl.CodeInvalid {
			t.Errorf("%s: got %v, want an error as the reference's %s", what, err, exception)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !reflect.DeepEqual(decode(t, want), decode(t, encoded)) { // cmp.Diff takes minutes on deep trees
		t.Errorf("%s:\nreference %s\nours      %s", what, want, encoded)
	}
}

func decode(t *testing.T, raw jsontext.Value) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// nestedIDs renders a tree as the golden files do: [id, [children]].
func nestedIDs(n *treeNode) any {
	if n == nil {
		return nil
	}
	children := make([]any, len(n.children))
	for i, child := range n.children {
		children[i] = nestedIDs(child)
	}
	return []any{n.id, children}
}

// randomCase is a line of the file of random traces, in one of three kinds.
type randomCase struct {
	Kind     string
	Spans    [][]jsontext.Value
	Repaired jsontext.Value
	Want     []jsontext.Value

	Attributes  agl.Attributes
	Unflattened jsontext.Value
	Grouped     jsontext.Value
}

func TestRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and it has one goroutine")
	}
	file, err := os.Open("testdata/random.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(unpacked)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	var header struct{ Options []tracerOptions }
	if err := json.Unmarshal(lines.Bytes(), &header, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for n := 2; lines.Scan() && !t.Failed(); n++ {
		var c randomCase
		if err := json.Unmarshal(lines.Bytes(), &c, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		kinds[c.Kind]++
		switch c.Kind {
		case "tree":
			c.checkTree(t, n, header.Options)
		case "proxy":
			c.checkProxy(t, n)
		case "flattened":
			c.checkFlattened(t, n)
		default:
			t.Fatalf("line %d: kind %q", n, c.Kind)
		}
	}
	if lines.Err() != nil || kinds["tree"] < 1000 || kinds["proxy"] < 100 || kinds["flattened"] < 100 {
		t.Errorf("lines read: %v (%v)", kinds, lines.Err())
	}
}

func (c *randomCase) checkTree(t *testing.T, line int, options []tracerOptions) {
	var spans []agl.Span
	for i, fields := range c.Spans {
		span := agl.Span{SequenceID: int64(i + 1)}
		scan(t, fields, &span.SpanID, &span.ParentID, &span.Name, &span.StartTime, &span.EndTime, &span.Attributes)
		spans = append(spans, span)
	}
	root, err := buildTree(spans)
	if err == nil {
		repair(root)
	}
	checkAnswer(t, fmt.Sprintf("line %d repaired", line), nestedIDs(root), err, c.Repaired)
	for i, o := range options {
		triplets, err := o.adapter().Adapt(spans)
		brief := []any{}
		for _, triplet := range triplets {
			span, _ := rawjson.Get(triplet.Metadata.Request, "span")
			brief = append(brief, []any{span, triplet.Metadata.AgentName, triplet.Reward})
		}
		checkAnswer(t, fmt.Sprintf("line %d options %d", line, i), brief, err, c.Want[i])
	}
}

func (c *randomCase) checkProxy(t *testing.T, line int) {
	var spans []agl.Span
	for _, fields := range c.Spans {
		var span agl.Span
		scan(t, fields, &span.SpanID, &span.SequenceID, &span.Name, &span.StartTime, &span.Attributes)
		spans = append(spans, span)
	}
	triplets, err := ProxyTriplets{}.Adapt(spans)
	brief := []any{}
	for _, triplet := range triplets {
		brief = append(brief, []any{triplet.Prompt.TokenIDs[0], triplet.Metadata.ResponseID, triplet.Reward})
	}
	want, merr := json.Marshal(c.Want)
	if merr != nil {
		t.Fatal(merr)
	}
	checkAnswer(t, fmt.Sprintf("line %d", line), brief, err, want)
}

func (c *randomCase) checkFlattened(t *testing.T, line int) {
	attrs := parseAttributes(c.Attributes)
	unflattened, err := attrs.unflatten("p")
	checkAnswer(t, fmt.Sprintf("line %d unflattened", line), unflattened.json(), err, c.Unflattened)
	grouped, err := attrs.below("p").group(0)
	checkAnswer(t, fmt.Sprintf("line %d grouped", line), grouped.json(), err, c.Grouped)
}

func scan(t *testing.T, fields []jsontext.Value, targets ...any) {
	t.Helper()
	for i, target := range targets {
		if err := json.Unmarshal(fields[i], target); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLiterals(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/literals.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text string         `json:"text"`
		Want jsontext.Value `json:"want"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		value, err := readLiteral(c.Text)
		if err != nil {
			checkAnswer(t, fmt.Sprintf("%q", c.Text), nil, err, c.Want)
			continue
		}
		if err := json.Unmarshal(value, new(any), jsontext.AllowDuplicateNames(true)); err != nil {
			t.Errorf("%q: got %s: %v", c.Text, value, err)
			continue
		}
		var got any
		if err := json.Unmarshal(value, &got, rawjson.Options()); err != nil {
			t.Fatal(err)
		}
		checkAnswer(t, fmt.Sprintf("%q", c.Text), []any{got}, nil, c.Want)
	}
}

// TestGoldenProxy reads the spans that this project's proxy records, of which the
// reference's answers are kept there.
func TestGoldenProxy(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"spans", "forms"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goldenProxy(t, name)
		})
	}
}

func goldenProxy(t *testing.T, name string) {
	t.Helper()
	var spans []agl.Span
	var want struct{ Proxy, Tracer, Messages jsontext.Value }
	for file, target := range map[string]any{name: &spans, "triplets-" + name: &want} {
		data, err := os.ReadFile("../proxy/testdata/" + file + ".golden.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, target, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
	}
	triplets, err := ProxyTriplets{}.Adapt(spans)
	checkAnswer(t, "proxy", triplets, err, want.Proxy)
	triplets, err = TracerTriplets{CallMatch: regexp.MustCompile("litellm_request")}.Adapt(spans)
	checkAnswer(t, "tracer", triplets, err, want.Tracer)
	conversations, err := Messages{}.Adapt(spans)
	checkAnswer(t, "messages", conversations, err, want.Messages)
}
