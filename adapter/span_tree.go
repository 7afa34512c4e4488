package adapter

import (
	"math"
	"slices"

	"github.com/agl-go/agl"
)

// virtualRootID is the id of the root that is put above several roots.
const virtualRootID = "virtual-root"

// treeNode is a span in its tree. Times are seconds since the epoch, both -Inf when the span has none.
type treeNode struct {
	id         string
	span       *agl.Span // nil for a missing parent and for a virtual root
	start, end float64
	parent     *treeNode
	position   int // among the parent's children; only its order counts
	children   []*treeNode
}

func (n *treeNode) timed() bool { return !math.IsInf(n.start, -1) }

func (n *treeNode) add(child *treeNode) {
	child.parent, child.position = n, len(n.children)
	n.children = append(n.children, child)
}

// preorder returns n and all nodes below it, each before its children.
func (n *treeNode) preorder() []*treeNode {
	var nodes []*treeNode
	stack := []*treeNode{n}
	for len(stack) > 0 {
		node := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		nodes = append(nodes, node)
		for _, child := range slices.Backward(node.children) {
			stack = append(stack, child)
		}
	}
	return nodes
}

// buildTree puts spans under their parents, children in the given order. The roots are the spans without a parent,
// followed by a node for each parent that is not among the spans. Several roots get a virtual root above them. Spans
// in a loop of parents are left out. If there is no root, the error has code agl.CodeInvalid.
func buildTree(spans []agl.Span) (*treeNode, error) {
	if len(spans) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "no spans to adapt")
	}
	nodes := make(map[string]*treeNode, len(spans))
	list := make([]*treeNode, 0, len(spans))
	for i := range spans {
		if _, repeated := nodes[spans[i].SpanID]; repeated {
			continue
		}
		node := spanNode(&spans[i])
		nodes[node.id] = node
		list = append(list, node)
	}
	var roots, lost []*treeNode
	for _, node := range list {
		if !node.span.ParentID.Valid {
			roots = append(roots, node)
			continue
		}
		parent, ok := nodes[node.span.ParentID.V]
		if !ok {
			parent = &treeNode{id: node.span.ParentID.V, start: math.Inf(-1), end: math.Inf(-1)}
			nodes[parent.id] = parent
			lost = append(lost, parent)
		}
		parent.add(node)
	}
	for _, node := range lost {
		node.cover()
	}
	roots = append(roots, lost...)
	switch len(roots) {
	case 0:
		return nil, agl.Errorf(agl.CodeInvalid, "no root among %d spans of rollout %q: every span's parent is another of them", len(spans), spans[0].RolloutID)
	case 1:
		return roots[0], nil
	}
	above := &treeNode{id: virtualRootID, start: roots[0].start, end: roots[len(roots)-1].end}
	for _, root := range roots {
		above.add(root)
	}
	return above, nil
}

func spanNode(span *agl.Span) *treeNode {
	node := &treeNode{id: span.SpanID, span: span, start: math.Inf(-1), end: math.Inf(-1)}
	if span.StartTime.Valid || span.EndTime.Valid {
		node.start = float64(span.StartTime.Or(span.EndTime.V))
		node.end = float64(span.EndTime.Or(span.StartTime.V))
	}
	return node
}

// cover gives the node of a missing parent the time of its children.
func (n *treeNode) cover() {
	for _, child := range n.children {
		if !child.timed() {
			continue
		}
		if !n.timed() {
			n.start, n.end = child.start, child.end
			continue
		}
		n.start, n.end = min(n.start, child.start), max(n.end, child.end)
	}
}

// before reports whether n comes before other, another node of the same tree, in preorder. Its time is proportional
// to their depth.
func (n *treeNode) before(other *treeNode) bool {
	a, b := n, other
	depthA, depthB := a.depth(), b.depth()
	for d := depthA; d > depthB; d-- {
		a = a.parent
	}
	for d := depthB; d > depthA; d-- {
		b = b.parent
	}
	if a == b {
		return depthA < depthB
	}
	for a.parent != b.parent {
		a, b = a.parent, b.parent
	}
	return a.position < b.position
}

func (n *treeNode) depth() int {
	depth := 0
	for at := n.parent; at != nil; at = at.parent {
		depth++
	}
	return depth
}

// within reports whether n is ancestor or below it.
func (n *treeNode) within(ancestor *treeNode) bool {
	for at := n; at != nil; at = at.parent {
		if at == ancestor {
			return true
		}
	}
	return false
}
