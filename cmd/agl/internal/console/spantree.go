package console

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
)

// maxIndent is the largest indent of a tree. Deeper spans have this indent and their
// depth as a number, so that a long chain stays readable.
const maxIndent = 24

// SpanTree draws the spans as trees, with times relative to start. It writes line
// by line and keeps its own stack: a chain of spans may be as long as a rollout.
func SpanTree(w io.Writer, start agl.Timestamp, spans []agl.Span) error {
	type frame struct {
		nodes  []*spanNode
		prefix string
	}
	stack := []frame{{nodes: spanForest(spans)}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if len(top.nodes) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		node := top.nodes[0]
		top.nodes = top.nodes[1:]
		branch, below := "├─ ", "│  "
		if len(top.nodes) == 0 {
			branch, below = "└─ ", "   "
		}
		depth := len(stack)
		next := top.prefix + below
		if depth > maxIndent {
			branch, next = fmt.Sprintf("%s(%d) ", branch, depth), top.prefix
		}
		if _, err := fmt.Fprintln(w, Faint.Render(top.prefix+branch)+spanLine(start, node.span)); err != nil {
			return err
		}
		if len(node.children) > 0 {
			stack = append(stack, frame{node.children, next})
		}
	}
	return nil
}

// spanLine describes a span: its start, duration, name, tokens, rewards and error.
func spanLine(start agl.Timestamp, s *agl.Span) string {
	times := "no time"
	if s.StartTime.Valid {
		begun := Duration(s.StartTime.V.Sub(start))
		if !strings.HasPrefix(begun, "-") { // a clock that is behind
			begun = "+" + begun
		}
		times = begun + " " + Took(s.StartTime, s.EndTime, "open")
	}
	parts := []string{Faint.Render(times), Strong.Render(Printable(s.Name))}
	if tokens := SpanTokens(s.Attributes); tokens != "" {
		parts = append(parts, tokens)
	}
	if model, ok := s.Attributes.GetString(agl.AttrGenAIRequestModel); ok {
		parts = append(parts, Faint.Render(Printable(model)))
	}
	if rewards := SpanRewards(s.Attributes); rewards != "" {
		parts = append(parts, Good.Render("reward "+rewards))
	}
	if s.Status.Code == agl.StatusError {
		why := s.Status.Description.V
		if e := exceptionOf(s); e != nil && why == "" {
			why = exceptionText(e)
		}
		parts = append(parts, Bad.Render(strings.TrimSpace("error "+Printable(why))))
	}
	return strings.Join(parts, "  ")
}

// SpanTokens is "12+5 tokens", prompt and reply, of a span that counts them.
func SpanTokens(a agl.Attributes) string {
	prompt, reply, ok := TokenCounts(a)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d+%d tokens", prompt, reply)
}

// TokenAttributes stands for the attributes that [TokenCounts] reads.
const TokenAttributes = "gen_ai.usage.*"

// TokenCounts returns the tokens of a span's prompt and reply; ok is false if it counts
// none.
func TokenCounts(a agl.Attributes) (prompt, reply int64, ok bool) {
	prompt, hasPrompt := firstInt(a, agl.AttrGenAIInputTokens, agl.AttrGenAIPromptTokens)
	reply, hasReply := firstInt(a, agl.AttrGenAIOutputTokens, agl.AttrGenAICompletionTokens)
	return prompt, reply, hasPrompt || hasReply
}

func firstInt(a agl.Attributes, keys ...string) (int64, bool) {
	for _, key := range keys {
		if v, ok := a.GetInt(key); ok {
			return v, true
		}
	}
	return 0, false
}

// SpanRewards is "0.7" for a scalar reward and "primary=0.7 brevity=1" for several dimensions.
func SpanRewards(a agl.Attributes) string {
	var parts []string
	for i := range math.MaxInt {
		prefix := agl.AttrReward + "." + strconv.Itoa(i)
		value, ok := a.GetFloat(prefix + ".value")
		if !ok {
			break
		}
		name, _ := a.GetString(prefix + ".name")
		parts = append(parts, Printable(name)+"="+strconv.FormatFloat(value, 'g', -1, 64))
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "primary=")
	}
	return strings.Join(parts, " ")
}

// spanNode is a span with its children, in the order of the spans.
type spanNode struct {
	span     *agl.Span
	children []*spanNode
}

// spanForest puts every span under its parent and returns the roots. A span whose parent is missing is a root, and so is one
// span of each loop of parents: no span is lost. It takes linear time.
func spanForest(spans []agl.Span) []*spanNode {
	nodes := make([]spanNode, len(spans))
	byID := make(map[string]*spanNode, len(spans))
	for i := range spans {
		nodes[i].span = &spans[i]
		// Stores issue no id twice; of spans that share one, the first is the parent.
		if _, taken := byID[spans[i].SpanID]; !taken {
			byID[spans[i].SpanID] = &nodes[i]
		}
	}
	parent := func(n *spanNode) *spanNode {
		if n.span.ParentID.V == "" {
			return nil
		}
		return byID[n.span.ParentID.V]
	}
	var roots []*spanNode
	inLoop := loopHeads(nodes, parent)
	for i := range nodes {
		n := &nodes[i]
		if p := parent(n); p != nil && !inLoop[n] {
			p.children = append(p.children, n)
		} else {
			roots = append(roots, n)
		}
	}
	return roots
}

// loopHeads finds one node of each loop of parents.
func loopHeads(nodes []spanNode, parent func(*spanNode) *spanNode) map[*spanNode]bool {
	heads := map[*spanNode]bool{}
	walk := make(map[*spanNode]int, len(nodes)) // the walk that reached a node first
	for i := range nodes {
		n := &nodes[i]
		for n != nil && walk[n] == 0 {
			walk[n] = i + 1
			n = parent(n)
		}
		if n != nil && walk[n] == i+1 {
			heads[n] = true
		}
	}
	return heads
}
