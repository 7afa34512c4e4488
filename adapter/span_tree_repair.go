package adapter

import (
	"cmp"
	"math"
	"slices"
)

// repair moves spans that ended up directly under the root, because tracing systems were mixed, to the span during
// which they ran. If the root has a single child, that child is treated as the root, and so on.
//
// Each child of the root, in order, moves to the node below the root whose time contains the child's and exceeds it
// by the least. Nodes with exactly the child's time do not count; of several candidates, the first in preorder of the
// current tree counts. The last child stays. The rule is that of the Python package, including a corner case: when
// the candidate is below the child itself, the child's whole subtree leaves the tree.
func repair(root *treeNode) {
	for len(root.children) == 1 {
		root = root.children[0]
	}
	if len(root.children) == 0 {
		return
	}
	index := newContainers(root.preorder()[1:])
	children := root.children
	left := len(children)
	moved := make(map[*treeNode]bool)
	for _, child := range children {
		if left == 1 {
			break
		}
		container := index.smallest(child)
		if container == nil {
			continue
		}
		left--
		moved[child] = true
		if container.within(child) {
			index.remove(child.preorder())
			continue
		}
		container.add(child)
		index.reordered(child.preorder())
	}
	root.children = make([]*treeNode, 0, left)
	for _, child := range children {
		if !moved[child] {
			root.children = append(root.children, child)
		}
	}
}

// excess returns by how much the interval from start to end exceeds the node's. Evaluated in this order it is
// monotone in start and end even after rounding, which bound relies on, and it rounds as Python does.
func (n *treeNode) excess(start, end float64) float64 {
	return end - n.end + n.start - start
}

// containers finds the smallest interval that contains another one, in a set that shrinks. It is a k-d tree (Bentley 1975)
// over the points (start, end) of distinct intervals, searched by branch and bound; a search visits O(√n) nodes at worst and
// usually O(log n).
type containers struct {
	intervals []*interval
	of        map[*treeNode]*interval
	boxes     []box // of the k-d tree, box i has the halves 2i+1 and 2i+2
	visited   int   // boxes that searches looked into, for tests
}

// interval is the time of one or more nodes.
type interval struct {
	start, end float64
	nodes      []*treeNode
	left       int       // number of nodes that have not been removed
	leaf       int       // the box that contains it
	first      *treeNode // the first of these nodes in preorder; nil when unknown
}

// box bounds the intervals of a range that still have nodes.
type box struct {
	low, high          int
	minStart, maxStart float64
	minEnd, maxEnd     float64
	left               int // number of these intervals
}

// leafSize is the largest size of a box that is not split.
const leafSize = 8

func newContainers(nodes []*treeNode) *containers {
	type key struct{ start, end float64 }
	c := &containers{of: make(map[*treeNode]*interval, len(nodes))}
	byTime := make(map[key]*interval, len(nodes))
	for _, node := range nodes {
		if !node.timed() {
			continue
		}
		k := key{node.start, node.end}
		times, ok := byTime[k]
		if !ok {
			times = &interval{start: node.start, end: node.end, first: node}
			byTime[k] = times
			c.intervals = append(c.intervals, times)
		}
		times.nodes = append(times.nodes, node)
		times.left++
		c.of[node] = times
	}
	if len(c.intervals) > 0 {
		c.build(0, 0, len(c.intervals), true)
	}
	return c
}

// build makes box i from the intervals low to high, split by start and by end in turn.
func (c *containers) build(i, low, high int, byStart bool) {
	for len(c.boxes) <= i {
		c.boxes = append(c.boxes, box{})
	}
	b := box{
		low: low, high: high, left: high - low,
		minStart: math.Inf(1), maxStart: math.Inf(-1), minEnd: math.Inf(1), maxEnd: math.Inf(-1),
	}
	part := c.intervals[low:high]
	for _, times := range part {
		b.minStart, b.maxStart = min(b.minStart, times.start), max(b.maxStart, times.start)
		b.minEnd, b.maxEnd = min(b.minEnd, times.end), max(b.maxEnd, times.end)
	}
	c.boxes[i] = b
	if len(part) <= leafSize {
		for _, times := range part {
			times.leaf = i
		}
		return
	}
	middle := len(part) / 2
	slices.SortFunc(part, func(a, b *interval) int {
		if byStart {
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Compare(a.end, b.end)
	})
	c.build(2*i+1, low, low+middle, !byStart)
	c.build(2*i+2, low+middle, high, !byStart)
}

// smallest returns the node whose time contains the child's and exceeds it by the least, but not by zero; nil if
// there is none.
func (c *containers) smallest(child *treeNode) *treeNode {
	if !child.timed() || len(c.boxes) == 0 {
		return nil
	}
	search := search{containers: c, child: child, least: math.Inf(1)}
	search.visit(0)
	return search.found
}

type search struct {
	*containers

	child *treeNode
	least float64
	found *treeNode
}

// bound returns the least excess that an interval in the box can have, +Inf when none contains the child.
func (s *search) bound(b *box) float64 {
	if b.left == 0 || b.minStart > s.child.start || b.maxEnd < s.child.end {
		return math.Inf(1)
	}
	return s.child.excess(min(b.maxStart, s.child.start), max(b.minEnd, s.child.end))
}

func (s *search) visit(i int) {
	s.visited++
	b := &s.boxes[i]
	if bound := s.bound(b); bound > s.least || math.IsInf(bound, 1) {
		return
	}
	if b.high-b.low > leafSize {
		near, far := 2*i+1, 2*i+2
		if s.bound(&s.boxes[far]) < s.bound(&s.boxes[near]) {
			near, far = far, near
		}
		s.visit(near)
		s.visit(far)
		return
	}
	for _, times := range s.intervals[b.low:b.high] {
		if times.left > 0 && times.start <= s.child.start && times.end >= s.child.end {
			s.consider(times)
		}
	}
}

func (s *search) consider(times *interval) {
	excess := s.child.excess(times.start, times.end)
	if excess <= 0 || excess > s.least {
		return
	}
	first := s.firstNode(times)
	if excess < s.least || first.before(s.found) {
		s.least, s.found = excess, first
	}
}

// firstNode returns the first of the nodes that are left, in preorder.
func (c *containers) firstNode(times *interval) *treeNode {
	if times.first == nil {
		times.nodes = slices.DeleteFunc(times.nodes, func(node *treeNode) bool { return c.of[node] == nil })
		times.first = times.nodes[0]
		for _, node := range times.nodes[1:] {
			if node.before(times.first) {
				times.first = node
			}
		}
	}
	return times.first
}

// reordered notes that nodes have changed places in preorder.
func (c *containers) reordered(nodes []*treeNode) {
	for _, node := range nodes {
		if times := c.of[node]; times != nil && len(times.nodes) > 1 {
			times.first = nil
		}
	}
}

// remove takes nodes out of the set.
func (c *containers) remove(nodes []*treeNode) {
	for _, node := range nodes {
		times := c.of[node]
		if times == nil {
			continue
		}
		delete(c.of, node)
		times.first = nil
		if times.left--; times.left > 0 {
			continue
		}
		for i := times.leaf; ; i = (i - 1) / 2 {
			c.boxes[i].left--
			if i == 0 {
				break
			}
		}
	}
}
