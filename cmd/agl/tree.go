package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/agl-go/agl"
)

// spanNode is a span with its children, in the order of the spans.
type spanNode struct {
	span     *agl.Span
	children []*spanNode
}

// spanForest hangs every span under its parent. A span whose parent is not
// there, or that hangs in a loop of parents, is a root: nothing is lost. It
// takes time in proportion to the spans.
func spanForest(spans []agl.Span) []*spanNode {
	nodes := make([]spanNode, len(spans))
	byID := make(map[string]*spanNode, len(spans))
	for i := range spans {
		nodes[i].span = &spans[i]
		// Of spans with one id, which no store hands out, the first counts.
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
	root := looped(nodes, parent)
	for i := range nodes {
		n := &nodes[i]
		if p := parent(n); p != nil && !root[n] {
			p.children = append(p.children, n)
		} else {
			roots = append(roots, n)
		}
	}
	return roots
}

// looped finds one node in each loop of parents.
func looped(nodes []spanNode, parent func(*spanNode) *spanNode) map[*spanNode]bool {
	heads := map[*spanNode]bool{}
	walk := make(map[*spanNode]int, len(nodes)) // in which walk a node was seen first
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

// deepest is how far a tree is indented; what lies deeper is drawn at that
// depth with its depth as a number, so that a long chain stays readable.
const deepest = 24

var (
	faint  = lipgloss.NewStyle().Faint(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	strong = lipgloss.NewStyle().Bold(true)
)

// treePrinter draws a forest. Lines go out one by one, so that a large tree
// needs no memory of its own.
type treePrinter struct {
	w     io.Writer
	start agl.Timestamp // what times are relative to
}

// print draws the trees. It keeps its own stack: a chain of spans may be as long
// as a rollout.
func (p treePrinter) print(roots []*spanNode) error {
	type frame struct {
		nodes  []*spanNode
		prefix string
	}
	stack := []frame{{nodes: roots}}
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
		if depth > deepest {
			branch, next = fmt.Sprintf("%s(%d) ", branch, depth), top.prefix
		}
		if _, err := fmt.Fprintln(p.w, faint.Render(top.prefix+branch)+p.line(node.span)); err != nil {
			return errOutput(err)
		}
		if len(node.children) > 0 {
			stack = append(stack, frame{node.children, next})
		}
	}
	return nil
}

// line is what is said of one span: when it began, how long it took, what it
// is, and its tokens, rewards and error.
func (p treePrinter) line(s *agl.Span) string {
	parts := []string{faint.Render(p.times(s)), strong.Render(printable(s.Name))}
	if tokens := spanTokens(s.Attributes); tokens != "" {
		parts = append(parts, tokens)
	}
	if model, ok := s.Attributes.GetString(agl.AttrGenAIRequestModel); ok {
		parts = append(parts, faint.Render(printable(model)))
	}
	if rewards := spanRewards(s.Attributes); rewards != "" {
		parts = append(parts, good.Render("reward "+rewards))
	}
	if s.Status.Code == agl.StatusError {
		parts = append(parts, bad.Render(strings.TrimSpace("error "+printable(s.Status.Description.V))))
	}
	return strings.Join(parts, "  ")
}

func (p treePrinter) times(s *agl.Span) string {
	if !s.StartTime.Valid {
		return "no time"
	}
	at := "+" + seconds(s.StartTime.V.Sub(p.start))
	if !s.EndTime.Valid {
		return at + " open"
	}
	return at + " " + seconds(s.EndTime.V.Sub(s.StartTime.V))
}

// seconds writes a duration to three figures or the millisecond.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// spanTokens is "12+5 tokens", prompt and reply, of a span that counts them.
func spanTokens(a agl.Attributes) string {
	prompt, hasPrompt := firstInt(a, agl.AttrGenAIInputTokens, agl.AttrGenAIPromptTokens)
	reply, hasReply := firstInt(a, agl.AttrGenAIOutputTokens, agl.AttrGenAICompleteTokens)
	if !hasPrompt && !hasReply {
		return ""
	}
	return fmt.Sprintf("%d+%d tokens", prompt, reply)
}

func firstInt(a agl.Attributes, keys ...string) (int64, bool) {
	for _, key := range keys {
		if v, ok := a.GetInt(key); ok {
			return v, true
		}
	}
	return 0, false
}

// spanRewards is "0.7" for a scalar reward and "primary=0.7 brevity=1" for
// several dimensions.
func spanRewards(a agl.Attributes) string {
	var parts []string
	for i := range math.MaxInt {
		prefix := agl.AttrReward + "." + strconv.Itoa(i)
		value, ok := a.GetFloat(prefix + ".value")
		if !ok {
			break
		}
		name, _ := a.GetString(prefix + ".name")
		parts = append(parts, printable(name)+"="+strconv.FormatFloat(value, 'g', -1, 64))
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "primary=")
	}
	return strings.Join(parts, " ")
}

// longest is how much of a text from a span or an input is shown.
const longest = 120

// printable makes text of unknown origin fit for one line of a terminal: no
// control characters, not too long.
func printable(s string) string {
	var out strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > longest {
			out.WriteRune('…')
			break
		}
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			out.WriteByte(' ')
		case strconv.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteRune('\uFFFD')
		}
	}
	return out.String()
}
