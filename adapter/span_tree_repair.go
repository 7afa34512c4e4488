package adapter

import (
	"math"
	"slices"
)

// repair puts spans that hang directly under the root, because tracing systems
// were mixed, under the span in whose time they ran. Where the root has one
// child, its child is the root, and so on.
//
// Each child of the root, in order, goes to the node below the root whose time
// contains its own and exceeds it by least; nodes of exactly its own time do not
// count, and of several the first in preorder counts, as the tree then is. The
// last child stays. The rule is the reference's and has a corner: when the node
// found is below the child itself, the child's whole subtree leaves the tree.
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

// excess is by how much the time from start to end exceeds the node's. Evaluated
// in this order it is monotone in start and in end also after rounding, which
// bounds rely on, and rounds as the reference does.
func (n *treeNode) excess(start, end float64) float64 {
	return end - n.end + n.start - start
}

// containers finds the smallest interval that contains another one, in a set
// that shrinks. It is a k-d tree (Bentley 1975) over the points (start, end) of
// distinct intervals, searched by branch and bound; a search visits O(√n) nodes
// at worst and mostly O(log n).
type containers struct {
	intervals []*interval
	of        map[*treeNode]*interval
	boxes     []box // of the k-d tree, box i has the halves 2i+1 and 2i+2
	visited   int   // boxes that searches looked into, for tests
}

// interval is all nodes that share one time.
type interval struct {
	start, end float64
	nodes      []*treeNode
	left       int       // nodes that have not been removed
	leaf       int       // the box that holds it
	first      *treeNode // of the nodes left, in preorder; nil when not known
}

// box bounds the intervals of a range that have nodes left.
type box struct {
	low, high          int
	minStart, maxStart float64
	minEnd, maxEnd     float64
	left               int // intervals that have nodes
}

// leafSize is how many intervals a box holds that is not halved.
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
		one, ok := byTime[k]
		if !ok {
			one = &interval{start: node.start, end: node.end, first: node}
			byTime[k] = one
			c.intervals = append(c.intervals, one)
		}
		one.nodes = append(one.nodes, node)
		one.left++
		c.of[node] = one
	}
	if len(c.intervals) > 0 {
		c.build(0, 0, len(c.intervals), true)
	}
	return c
}

// build makes box i of the intervals from low to high, halved by start or end in
// turn.
func (c *containers) build(i, low, high int, byStart bool) {
	for len(c.boxes) <= i {
		c.boxes = append(c.boxes, box{})
	}
	b := box{
		low: low, high: high, left: high - low,
		minStart: math.Inf(1), maxStart: math.Inf(-1), minEnd: math.Inf(1), maxEnd: math.Inf(-1),
	}
	part := c.intervals[low:high]
	for _, one := range part {
		b.minStart, b.maxStart = min(b.minStart, one.start), max(b.maxStart, one.start)
		b.minEnd, b.maxEnd = min(b.minEnd, one.end), max(b.maxEnd, one.end)
	}
	c.boxes[i] = b
	if len(part) <= leafSize {
		for _, one := range part {
			one.leaf = i
		}
		return
	}
	middle := len(part) / 2
	if byStart {
		selectNth(part, middle, func(x *interval) float64 { return x.start })
	} else {
		selectNth(part, middle, func(x *interval) float64 { return x.end })
	}
	c.build(2*i+1, low, low+middle, !byStart)
	c.build(2*i+2, low+middle, high, !byStart)
}

// selectNth reorders list so that no element before the n-th has a greater key
// and none behind it a smaller one (Hoare's FIND, 1961).
func selectNth(list []*interval, n int, key func(*interval) float64) {
	low, high := 0, len(list)-1
	for low < high {
		pivot := key(list[low+(high-low)/2])
		i, j := low, high
		for i <= j {
			for key(list[i]) < pivot {
				i++
			}
			for key(list[j]) > pivot {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i++
				j--
			}
		}
		switch {
		case n <= j:
			high = j
		case n >= i:
			low = i
		default:
			return
		}
	}
}

// smallest returns the node whose time contains the child's and exceeds it by
// least, but by something; nil when there is none.
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

// bound returns the least excess that an interval in the box can have, +Inf when
// none contains the child.
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
	for _, one := range s.intervals[b.low:b.high] {
		if one.left > 0 && one.start <= s.child.start && one.end >= s.child.end {
			s.consider(one)
		}
	}
}

func (s *search) consider(one *interval) {
	excess := s.child.excess(one.start, one.end)
	if excess <= 0 || excess > s.least {
		return
	}
	first := s.firstNode(one)
	if excess < s.least || first.before(s.found) {
		s.least, s.found = excess, first
	}
}

// firstNode returns the first of the nodes that are left, in preorder.
func (c *containers) firstNode(one *interval) *treeNode {
	if one.first == nil {
		one.nodes = slices.DeleteFunc(one.nodes, func(node *treeNode) bool { return c.of[node] == nil })
		one.first = one.nodes[0]
		for _, node := range one.nodes[1:] {
			if node.before(one.first) {
				one.first = node
			}
		}
	}
	return one.first
}

// reordered says that nodes changed their place among the others.
func (c *containers) reordered(nodes []*treeNode) {
	for _, node := range nodes {
		if one := c.of[node]; one != nil && len(one.nodes) > 1 {
			one.first = nil
		}
	}
}

// remove takes nodes out of the set.
func (c *containers) remove(nodes []*treeNode) {
	for _, node := range nodes {
		one := c.of[node]
		if one == nil {
			continue
		}
		delete(c.of, node)
		one.first = nil
		if one.left--; one.left > 0 {
			continue
		}
		for i := one.leaf; ; i = (i - 1) / 2 {
			c.boxes[i].left--
			if i == 0 {
				break
			}
		}
	}
}
