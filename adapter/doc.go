// Package adapter turns the spans of one attempt into learning signals:
//
//   - [TracerTriplets] reads calls and rewards from the spans that a tracer
//     recorded inside the agent. Spans form a tree, which is repaired where
//     tracing systems were mixed.
//   - [ProxyTriplets] reads them from the spans of an LLM proxy, in the order of
//     sequence ids, never of clocks.
//   - [Messages] reads chat conversations, for supervised fine-tuning.
//   - [Trajectories] merges the calls of a conversation into one sequence of
//     tokens, for reinforcement learning.
//   - [PrimaryReward], [Rewards] and [FinalReward] read rewards.
//
// The results equal those of Agent-lightning 0.3.0 on every trace that it can
// read; the golden files in testdata hold its answers. Where it stops with an
// exception because a trace is malformed, the error here has code
// agl.CodeInvalid and names the span. The differences:
//
//   - A span without an end ended when it started, and one without a start
//     started when it ended. One with neither lies before all others and takes no
//     part in the repair of the hierarchy. (The reference raises.)
//   - When several spans lack their parent, the parents' places are in the order
//     in which they are first named. (There it is the order of a hash set.)
//   - A span id that comes again is ignored, as the store does.
//   - A reward that is not finite reads as none, and attributes count as a reward
//     only below the prefix "agentlightning.reward.".
//   - Digits are those of ASCII, agent names and picture addresses are strings.
//   - No step is quadratic in the number of spans.
//
// The package does no I/O. It must not know the store, the proxy or any
// algorithm.
package adapter
