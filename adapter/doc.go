// Package adapter turns the spans of one attempt into learning signals. Each adapter is a value with a method Adapt,
// which takes spans in any order:
//
//   - [TracerTriplets] reads model calls and their rewards from the spans that a
//     tracer recorded inside the agent. The spans form a tree, which is repaired
//     where tracing systems were mixed.
//   - [ProxyTriplets] reads them from the spans of an LLM proxy, in the order of
//     sequence ids, never of clocks.
//   - [Messages] reads chat conversations, for supervised fine-tuning.
//   - [Trajectories] merges calls that continue one another into one sequence of
//     tokens, for reinforcement learning.
//
// [Rewards], [PrimaryReward] and [FinalReward] read only rewards.
//
//	merged, err := adapter.Trajectories{}.Adapt(spans) // of the calls that the LLM proxy recorded
//	for _, t := range merged.Trajectories {
//		train(t.TokenIDs, t.Mask, t.Logprobs, merged.Reward)
//	}
//
// The results equal those of Agent-lightning 0.3.0 on every trace that it can read; the golden files in testdata come from
// running it. Where it raises an exception because a trace is malformed, the error here has code agl.CodeInvalid and names
// the span. The differences:
//
//   - A span without an end ended when it started, and one without a start started
//     when it ended. One with neither comes before all others and takes no part in
//     the repair of the tree. (Python raises.)
//   - When several spans lack their parent, the parents are in the order in which
//     they are first named. (In Python it is the order of a hash set.)
//   - A span with a repeated id is ignored, as the store ignores it.
//   - A reward that is not finite, or beyond agl.MaxReward, counts as missing, and an
//     attribute counts as a reward only below the prefix "agentlightning.reward.".
//   - Only ASCII digits are digits; agent names and image addresses are strings.
//   - No step takes quadratic time in the number of spans.
//
// The package does no I/O. It must not know the store, the proxy or any algorithm.
package adapter
