package adapter

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agl-go/agl"
)

// repairNaively is the rule of repair without an index: every child is compared
// with every node of the tree as it then is.
func repairNaively(root *treeNode) {
	for len(root.children) == 1 {
		root = root.children[0]
	}
	for _, child := range slices.Clone(root.children) {
		if len(root.children) == 1 {
			break
		}
		var container *treeNode
		least := math.Inf(1)
		for _, node := range root.preorder() {
			if node == root || node == child || !node.timed() || !child.timed() {
				continue
			}
			if node.start <= child.start && node.end >= child.end {
				if excess := child.excess(node.start, node.end); excess > 0 && excess < least {
					least, container = excess, node
				}
			}
		}
		if container != nil {
			root.children = slices.DeleteFunc(root.children, func(n *treeNode) bool { return n == child })
			container.children = append(container.children, child)
		}
	}
}

// drawTrace draws spans with many ties: equal times, equal durations, equal
// spans, orphans, several roots, ends before starts, missing times.
func drawTrace(t *rapid.T, most int) []agl.Span {
	size := rapid.IntRange(1, most).Draw(t, "size")
	scale := rapid.SampledFrom([]float64{1, 0.1, 1.0 / 3}).Draw(t, "scale")
	width := rapid.IntRange(1, 40).Draw(t, "width")
	shape := rapid.IntRange(0, 2).Draw(t, "shape") // any parent, mostly the first, mostly the one before
	times := rapid.IntRange(0, width)
	spans := make([]agl.Span, size)
	for i := range spans {
		span := &spans[i]
		span.SpanID = fmt.Sprint("s", i)
		start := times.Draw(t, "start")
		end := start + rapid.IntRange(-1, width).Draw(t, "length")
		if presence := rapid.IntRange(0, 30).Draw(t, "presence"); presence > 1 {
			span.StartTime = agl.Some(agl.Timestamp(float64(start) * scale))
			if presence > 2 {
				span.EndTime = agl.Some(agl.Timestamp(float64(end) * scale))
			}
		}
		parent := rapid.IntRange(-2, i-1+4).Draw(t, "parent")
		switch {
		case i == 0 || parent == -2:
		case parent == -1:
			span.ParentID = agl.Some(fmt.Sprint("lost", parent%3))
		case parent >= i && shape == 1 || i == 1:
			span.ParentID = agl.Some("s0")
		case parent >= i:
			span.ParentID = agl.Some(fmt.Sprint("s", i-1))
		case shape == 2:
			span.ParentID = agl.Some(fmt.Sprint("s", max(0, i-1-parent%2)))
		default:
			span.ParentID = agl.Some(fmt.Sprint("s", parent))
		}
	}
	if rapid.Bool().Draw(t, "shuffled") {
		return rapid.Permutation(spans).Draw(t, "order")
	}
	return spans
}

func TestRepairEqualsTheNaiveRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spans := drawTrace(t, 150)
		fast, err := buildTree(spans)
		if err != nil {
			t.Fatal(err)
		}
		naive, err := buildTree(spans)
		if err != nil {
			t.Fatal(err)
		}
		repair(fast)
		repairNaively(naive)
		if got, want := nestedIDs(fast), nestedIDs(naive); !reflect.DeepEqual(got, want) {
			t.Fatalf("fast:  %v\nnaive: %v", got, want)
		}
	})
}

// longTraces are traces of n spans in which a search could degenerate
func longTraces() map[string]func(n int) []agl.Span {
	spans := func(n int, times func(i int) (start, end int)) []agl.Span {
		list := make([]agl.Span, n)
		for i := range list {
			start, end := times(i)
			list[i] = agl.Span{
				SpanID: fmt.Sprint(i), StartTime: agl.Some(agl.Timestamp(start)), EndTime: agl.Some(agl.Timestamp(end)),
			}
			if i > 0 {
				list[i].ParentID = agl.Some("0")
			}
		}
		return list
	}
	return map[string]func(n int) []agl.Span{
		"one after the other": func(n int) []agl.Span {
			return spans(n, func(i int) (int, int) { return i, i + 1 })
		},
		"calls in agents": func(n int) []agl.Span {
			return spans(n, func(i int) (int, int) {
				if i%10 == 0 {
					return 10 * i, 10*i + 99
				}
				return 10 * i, 10*i + 1
			})
		},
		"steps and streams that end at the end": func(n int) []agl.Span {
			return spans(n, func(i int) (int, int) {
				if i%2 == 0 {
					return i, i + 1
				}
				return i, n + 10
			})
		},
		"overlapping in waves": func(n int) []agl.Span {
			return spans(n, func(i int) (int, int) { return i * 7919 % n, i*7919%n + 1 + i*104729%n })
		},
		"all at once": func(n int) []agl.Span {
			return spans(n, func(i int) (int, int) { return 0, 1 + i%2 })
		},
	}
}

// TestSearchesStaySmall counts the boxes that searches look into. With a
// quadratic step, ten times the spans would be a hundred times the boxes.
func TestSearchesStaySmall(t *testing.T) {
	t.Parallel()
	for name, trace := range longTraces() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			visited := func(n int) int {
				root, err := buildTree(trace(n))
				if err != nil {
					t.Fatal(err)
				}
				index := newContainers(root.preorder()[1:])
				for _, child := range root.children {
					index.smallest(child)
				}
				return index.visited
			}
			small, large := visited(1000), visited(10_000)
			if large > 20*small || large > 10_000*200 {
				t.Errorf("boxes looked into: %d for 1,000 spans, %d for 10,000", small, large)
			}
		})
	}
}

func TestMatchEqualsTheNaiveRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "calls")
		open := newMinTree(n)
		ends := make([]float64, n)
		for i := range ends {
			ends[i] = math.NaN()
		}
		put := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			value := float64(rapid.IntRange(0, 9).Draw(t, "time"))
			if put < n && rapid.Bool().Draw(t, "put") {
				open.put(put, value)
				ends[put] = value
				put++
				continue
			}
			want := -1
			for i := range ends {
				if ends[i] <= value {
					want = i
				}
			}
			got, ok := open.takeLast(value)
			if ok != (want >= 0) || ok && got != want {
				t.Fatalf("takeLast(%v) of %v: got %d, %v, want %d", value, ends, got, ok, want)
			}
			if ok {
				ends[got] = math.NaN()
			}
		}
	})
}
