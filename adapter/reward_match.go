package adapter

import (
	"cmp"
	"math"
	"slices"
)

// RewardMatch says which call a reward belongs to.
type RewardMatch string

// The policies. A call gets at most one reward. When several rewards follow a call,
// the first goes to it and the next ones to the calls before it.
const (
	// FirstOccurrence goes through all spans by start time. A reward goes to the call that started last among those
	// that ended before the reward began and do not have a reward yet.
	FirstOccurrence RewardMatch = "first_occurrence"
	// FirstSibling goes through the children of each span in their order. A reward goes to the last call before it,
	// among these children, that ended before the reward began and does not have a reward yet.
	FirstSibling RewardMatch = "first_sibling"
	// LastCall gives the attempt's final reward, as [FinalReward] reads it, to the last call only.
	LastCall RewardMatch = "final"
)

func rewardMatches() []RewardMatch { return []RewardMatch{FirstOccurrence, FirstSibling, LastCall} }

// matchRewards returns the rewards of calls by policy FirstOccurrence or FirstSibling. Nodes are the tree in preorder.
func matchRewards(policy RewardMatch, nodes []*treeNode, all map[*treeNode]*facts, calls []call) map[*treeNode]float64 {
	isCall := make(map[*treeNode]bool, len(calls))
	for _, found := range calls {
		isCall[found.node] = true
	}
	m := matcher{facts: all, isCall: isCall, rewards: make(map[*treeNode]float64)}
	if policy == FirstSibling {
		for _, node := range nodes {
			m.match(node.children)
		}
		return m.rewards
	}
	byTime := slices.Clone(nodes)
	slices.SortStableFunc(byTime, func(a, b *treeNode) int { return cmp.Compare(a.start, b.start) })
	m.match(byTime)
	return m.rewards
}

type matcher struct {
	facts   map[*treeNode]*facts
	isCall  map[*treeNode]bool
	rewards map[*treeNode]float64
}

// match goes through nodes and gives each reward to the last call before it that had ended and does not have a reward
// yet.
func (m *matcher) match(nodes []*treeNode) {
	var calls []*treeNode
	anyReward := false
	for _, node := range nodes {
		if m.isCall[node] {
			calls = append(calls, node)
		}
		anyReward = anyReward || m.facts[node].reward.Valid
	}
	if len(calls) == 0 || !anyReward {
		return
	}
	open := newMinTree(len(calls))
	opened := 0
	for _, node := range nodes {
		if m.isCall[node] {
			open.put(opened, node.end)
			opened++
		}
		if reward := m.facts[node].reward; reward.Valid {
			if i, ok := open.takeLast(node.start); ok {
				m.rewards[calls[i]] = reward.V
			}
		}
	}
}

// minTree holds numbers at the indices 0 to n-1 and finds the last one that does not exceed a limit in O(log n). It
// is a segment tree of minima. An empty index holds NaN, which compares with nothing.
type minTree struct {
	tree []float64 // tree[1] is the root, tree[size+i] the leaf of index i
	size int
}

func newMinTree(n int) *minTree {
	size := 1
	for size < n {
		size *= 2
	}
	p := &minTree{tree: make([]float64, 2*size), size: size}
	for i := range p.tree {
		p.tree[i] = math.NaN()
	}
	return p
}

func (p *minTree) put(place int, value float64) {
	i := p.size + place
	p.tree[i] = value
	for i /= 2; i > 0; i /= 2 {
		p.tree[i] = lesser(p.tree[2*i], p.tree[2*i+1])
	}
}

// takeLast removes the last number that does not exceed the limit and returns its index.
func (p *minTree) takeLast(limit float64) (place int, ok bool) {
	if !(p.tree[1] <= limit) {
		return 0, false
	}
	i := 1
	for i < p.size {
		i = 2*i + 1
		if !(p.tree[i] <= limit) {
			i--
		}
	}
	p.put(i-p.size, math.NaN())
	return i - p.size, true
}

// lesser returns the smaller number, or the other one if either is NaN.
func lesser(a, b float64) float64 {
	if math.IsNaN(a) || b < a {
		return b
	}
	return a
}
