package adapter

import (
	"regexp"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// anyAgent is the agent of calls that are under no named agent.
const anyAgent = "*"

// facts is what the adapters need to know about a node's span.
type facts struct {
	attributes attributes
	agent      agl.Null[string]
	reward     agl.Null[float64]
	// judged says that the span is a reward, or an operation that computes one.
	judged bool
}

// call is a node that is a model call.
type call struct {
	node       *treeNode
	agent      string
	attributes attributes
}

// readFacts reads the facts of every node that stands for a span.
func readFacts(nodes []*treeNode) (map[*treeNode]*facts, error) {
	all := make(map[*treeNode]*facts, len(nodes))
	for _, node := range nodes {
		if node.span == nil {
			all[node] = &facts{}
			continue
		}
		attrs := parseAttributes(node.span.Attributes)
		rewards, err := readRewards(node.span.Name, attrs)
		if err != nil {
			return nil, spanError(node.span, err)
		}
		f := &facts{attributes: attrs, agent: agentName(node.span.Name, attrs), reward: primary(rewards)}
		f.judged = f.reward.Valid
		if IsPosted(node.span) { // it names its call
			f.reward = agl.Null[float64]{}
		}
		if operation, ok := attrs.str(agl.AttrOperationName); ok && operation == agl.SpanReward && node.span.Name == agl.SpanOperation {
			f.judged = true
		}
		all[node] = f
	}
	return all, nil
}

// agentName returns the name of the agent that a span belongs to, by the conventions of agent frameworks; null if it
// belongs to none.
func agentName(span string, attrs attributes) agl.Null[string] {
	rules := [...]struct {
		key       string
		condition bool
	}{
		{"agent.name", true}, // OpenAI Agents SDK
		{"operation.name", attrs.is("agentops.span.kind", "agent")},   // AgentOps
		{"recipient_agent_type", true},                                // AutoGen
		{"langchain.chain.type", true},                                // LangGraph
		{"executor.id", true},                                         // Agent Framework
		{agl.AttrOperationInput + ".name", attrs.is("type", "agent")}, // Weave
		{"lc_name", strings.HasPrefix(span, "langchain.Chain.")},      // LangChain below Weave
	}
	for _, rule := range rules {
		if !rule.condition {
			continue
		}
		if name, ok := attrs.str(rule.key); ok {
			return agl.Some(name)
		}
	}
	return agl.Null[string]{}
}

// callState is what a node inherits from its ancestors.
type callState struct {
	agent    string
	matching bool // below an agent whose calls count
	judged   bool // below a reward
	inCall   bool
}

// findCalls returns the model calls in preorder. Calls with the same response id count once; a call without a
// response id does not count below another call.
func findCalls(root *treeNode, all map[*treeNode]*facts, callMatch, agentMatch *regexp.Regexp, includeJudged bool) []call {
	type visit struct {
		node  *treeNode
		state callState
	}
	var calls []call
	seen := map[string]bool{}
	stack := []visit{{root, callState{agent: anyAgent, matching: agentMatch == nil}}}
	for len(stack) > 0 {
		node, state := stack[len(stack)-1].node, stack[len(stack)-1].state
		stack = stack[:len(stack)-1]
		f := all[node]
		if node.span != nil && state.matching && (includeJudged || !state.judged) && callMatch.MatchString(node.span.Name) {
			id, hasID := responseID(f.attributes)
			if hasID && !seen[id] || !hasID && !state.inCall {
				calls = append(calls, call{node, state.agent, f.attributes})
				state.inCall = true
				if hasID {
					seen[id] = true
				}
			}
		}
		if f.agent.Valid {
			state.agent = f.agent.V
			state.matching = agentMatch == nil || agentMatch.MatchString(f.agent.V)
		}
		state.judged = state.judged || f.judged
		for _, child := range slices.Backward(node.children) {
			stack = append(stack, visit{child, state})
		}
	}
	return calls
}

// is reports whether the attribute has this value.
func (a attributes) is(key, value string) bool {
	s, ok := a.str(key)
	return ok && s == value
}
