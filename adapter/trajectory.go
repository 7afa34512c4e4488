package adapter

import (
	"slices"

	"github.com/agl-go/agl"
)

// Trajectories merges the model calls of an attempt into sequences of tokens to train on. A call continues a
// trajectory when its prompt begins with all tokens of the trajectory, that is, the prompt and response of an earlier
// call, and so on. The rest of its prompt, which the model did not write, and its response are then appended. Any
// other call starts a new trajectory. So no token is trained on twice, and no text is tokenized again.
type Trajectories struct {
	// Source produces the triplets, in the order of the calls. Nil is ProxyTriplets{KeepWithoutTokens: true}.
	Source agl.Adapter[[]Triplet]
	// Keep selects the calls to merge, for agents that call several models; nil keeps all. The other calls are in
	// Report.Others.
	Keep func(Call) bool
}

// Trajectory is one sequence of tokens. TokenIDs, Mask and Logprobs have one element per token.
type Trajectory struct {
	TokenIDs []int32
	// Mask is true for the tokens that the model wrote, the ones to train on.
	Mask []bool
	// Logprobs are the log-probabilities of the tokens under the model that sampled
	// them, 0 where Mask is false and in replies without log-probabilities.
	Logprobs []float32
	// Replies are what the model wrote, in order; at least one.
	Replies []Reply
	// Reward is the reward of the last reply that has one, null if none has.
	Reward agl.Null[float64]
}

// Reply is the response of one call in a trajectory: the tokens from Start up to but not including End.
type Reply struct {
	Call

	Start, End int
	ResponseID agl.Null[string]
	AgentName  agl.Null[string]
	Reward     agl.Null[float64] // as the source matched it
}

// HasLogprobs reports whether the log-probability of every token was recorded.
func (r Reply) HasLogprobs() bool { return len(r.Logprobs) == r.End-r.Start }

// Versions returns the model versions that wrote the trajectory, each once, oldest first. Replies without a recorded
// version are skipped.
func (t *Trajectory) Versions() []string {
	var versions []string
	for _, reply := range t.Replies {
		for _, version := range []string{reply.Version, reply.VersionEnd} {
			if version != "" && !slices.Contains(versions, version) {
				versions = append(versions, version)
			}
		}
	}
	return versions
}

// Merged is the result of [Trajectories.Adapt].
type Merged struct {
	Trajectories []Trajectory // in the order of their first calls
	// Reward is the attempt's final reward, as [FinalReward] reads it.
	Reward agl.Null[float64]
	Report Report
}

// Report says which calls are in a trajectory, and why the others are not.
type Report struct {
	Calls     int // all calls found, except Others
	Continued int // calls that continue an earlier one
	// Mismatches are the calls that do not continue the call before them. Each started a new trajectory.
	Mismatches []Mismatch
	// WithoutTokens are the calls without token ids of the prompt or the response. They are in no trajectory.
	WithoutTokens []Call
	// Lost are the calls whose reply never reached the agent: they failed or were not delivered. They are in no
	// trajectory, even if they have tokens.
	Lost []Call
	// WithoutLogprobs are the calls in trajectories that lack the log-probability of a token.
	WithoutLogprobs []Call
	// Others are the calls that [Trajectories].Keep left out, such as those of other models.
	Others []Call
}

// Mismatch is a call whose prompt begins neither with the tokens of the call before it (of the same agent, if agents
// have names) nor with those of any other trajectory. The cause is a chat template that rewrites history, a tokenizer
// that merges differently, or a new conversation.
type Mismatch struct {
	Call     Call // the call that starts a new trajectory
	Previous Call // the call that it does not continue
	// At is the first index at which the prompt differs from the tokens (prompt and response) of the previous call,
	// or the prompt's length when those tokens begin with the prompt.
	At int
	// PreviousTokens is the number of tokens of the previous call.
	PreviousTokens int
}

// Adapt merges the calls. Errors have code agl.CodeInvalid.
func (a Trajectories) Adapt(spans []agl.Span) (Merged, error) {
	return a.merge(spans, func() ([]Triplet, error) { return a.source().Adapt(spans) })
}

// ShortForm implements [agl.ShortAdapter].
func (a Trajectories) ShortForm() (form agl.ShortForm, ok bool) {
	source, ok := a.source().(agl.ShortAdapter[[]Triplet])
	if !ok {
		return agl.ShortForm{}, false
	}
	form, ok = source.ShortForm()
	if a.Source != nil {
		form.Attributes = slices.Concat(form.Attributes, RewardAttributes())
	}
	return form, ok
}

// AdaptShort implements [agl.ShortAdapter].
func (a Trajectories) AdaptShort(spans agl.ShortSpans) (Merged, error) {
	return a.merge(spans.Spans, func() ([]Triplet, error) { return agl.AdaptSpans(a.source(), spans) })
}

func (a Trajectories) source() agl.Adapter[[]Triplet] {
	if a.Source == nil {
		return ProxyTriplets{KeepWithoutTokens: true}
	}
	return a.Source
}

func (a Trajectories) merge(spans []agl.Span, read func() ([]Triplet, error)) (Merged, error) {
	triplets, err := read()
	if err != nil {
		return Merged{}, err
	}
	reward, err := FinalReward(spans)
	if err != nil {
		return Merged{}, err
	}
	var others []Call
	if a.Keep != nil {
		var kept []Triplet
		for i := range triplets {
			if a.Keep(triplets[i].Call) {
				kept = append(kept, triplets[i])
			} else {
				others = append(others, triplets[i].Call)
			}
		}
		triplets = kept
	}
	merged := Merge(triplets)
	merged.Reward, merged.Report.Others = reward, others
	return merged, nil
}

// Merge merges triplets in the order of their calls, as [Trajectories] does. It leaves the attempt's reward null.
func Merge(triplets []Triplet) Merged {
	m := merger{open: map[tokenPrefix][]int{}, latest: map[agl.Null[string]]int{}}
	m.Report.Calls = len(triplets)
	for i := range triplets {
		m.add(triplets, i)
	}
	return m.Merged
}

type merger struct {
	Merged

	ends   []trajectoryEnd          // of each trajectory
	open   map[tokenPrefix][]int    // trajectories by all their tokens
	sizes  []openSize               // of the keys of open, ascending
	hashes prefixHashes             // of prompts
	latest map[agl.Null[string]]int // the last call of each agent
}

// trajectoryEnd identifies all tokens of a trajectory, where it can continue: they are the tokens of its last call.
type trajectoryEnd struct {
	key  tokenPrefix
	last *Triplet
}

// openSize is the number of open trajectories with this many tokens.
type openSize struct{ tokens, count int }

func (m *merger) add(triplets []Triplet, i int) {
	t := &triplets[i]
	if t.Call.Failed || t.Call.Undelivered {
		m.Report.Lost = append(m.Report.Lost, t.Call)
		return
	}
	if len(t.Prompt.TokenIDs) == 0 || len(t.Response.TokenIDs) == 0 {
		m.Report.WithoutTokens = append(m.Report.WithoutTokens, t.Call)
		return
	}
	at := m.continued(t.Prompt.TokenIDs)
	if at >= 0 {
		m.Report.Continued++
		m.close(at)
	} else {
		if previous, ok := m.latest[t.Metadata.AgentName]; ok {
			m.mismatch(t, &triplets[previous])
		}
		at = len(m.Trajectories)
		m.Trajectories = append(m.Trajectories, Trajectory{})
		m.ends = append(m.ends, trajectoryEnd{key: tokenPrefix{hash: hashSeed}})
	}
	m.latest[t.Metadata.AgentName] = i
	trajectory := &m.Trajectories[at]
	if reply := trajectory.append(t); !reply.HasLogprobs() {
		m.Report.WithoutLogprobs = append(m.Report.WithoutLogprobs, t.Call)
	}
	end := &m.ends[at]
	end.last = t
	for _, id := range trajectory.TokenIDs[end.key.length:] {
		end.key.add(id)
	}
	m.open[end.key] = append(m.open[end.key], at)
	i, found := m.size(end.key.length)
	if !found {
		m.sizes = slices.Insert(m.sizes, i, openSize{tokens: end.key.length})
	}
	m.sizes[i].count++
}

// size returns the index in sizes of this number of tokens, or the index at which to insert it.
func (m *merger) size(tokens int) (i int, found bool) {
	return slices.BinarySearchFunc(m.sizes, tokens, func(s openSize, tokens int) int { return s.tokens - tokens })
}

// append adds the new part of a call's prompt, and its reply.
func (t *Trajectory) append(call *Triplet) Reply {
	prompt, response := call.Prompt.TokenIDs, call.Response.TokenIDs
	t.TokenIDs = append(t.TokenIDs, prompt[len(t.TokenIDs):]...)
	start := len(t.TokenIDs)
	t.TokenIDs = append(t.TokenIDs, response...)
	end := len(t.TokenIDs)

	t.Mask = append(t.Mask, make([]bool, end-len(t.Mask))...)
	for i := start; i < end; i++ {
		t.Mask[i] = true
	}
	t.Logprobs = append(t.Logprobs, make([]float32, end-len(t.Logprobs))...)
	reply := Reply{
		Call: call.Call, Start: start, End: end,
		ResponseID: call.Metadata.ResponseID, AgentName: call.Metadata.AgentName, Reward: call.Reward,
	}
	if reply.HasLogprobs() {
		copy(t.Logprobs[start:], reply.Logprobs)
	}
	t.Replies = append(t.Replies, reply)
	if call.Reward.Valid {
		t.Reward = call.Reward
	}
	return reply
}

// continued returns the index of the longest trajectory that the prompt begins with, the latest of several, or -1. A
// prompt that shares memory with an earlier one is not hashed again, so a conversation takes time proportional to its
// length.
func (m *merger) continued(prompt []int32) int {
	fits, exact := m.size(len(prompt))
	if exact {
		fits++
	}
	if fits == 0 {
		return -1
	}
	hashes := m.hashes.of(prompt)
	for _, size := range slices.Backward(m.sizes[:fits]) {
		key := tokenPrefix{size.tokens, hashes[size.tokens-1]}
		for _, at := range slices.Backward(m.open[key]) {
			if m.begins(prompt, at) {
				return at
			}
		}
	}
	return -1
}

// begins reports whether a prompt, which is long enough, begins with the tokens of a trajectory.
func (m *merger) begins(prompt []int32, at int) bool {
	last := m.ends[at].last
	n := len(last.Prompt.TokenIDs)
	return commonPrefix(prompt, last.Prompt.TokenIDs) == n &&
		commonPrefix(prompt[n:], last.Response.TokenIDs) == len(last.Response.TokenIDs)
}

// close removes a trajectory from the open ones, because it is about to grow.
func (m *merger) close(at int) {
	key := m.ends[at].key
	i := slices.Index(m.open[key], at)
	if m.open[key] = slices.Delete(m.open[key], i, i+1); len(m.open[key]) == 0 {
		delete(m.open, key)
	}
	i, _ = m.size(key.length)
	if m.sizes[i].count--; m.sizes[i].count == 0 {
		m.sizes = slices.Delete(m.sizes, i, i+1)
	}
}

// mismatch reports that a call does not continue the previous one.
func (m *merger) mismatch(t, previous *Triplet) {
	prompt := t.Prompt.TokenIDs
	at := commonPrefix(prompt, previous.Prompt.TokenIDs)
	if at == len(previous.Prompt.TokenIDs) {
		at += commonPrefix(prompt[at:], previous.Response.TokenIDs)
	}
	m.Report.Mismatches = append(m.Report.Mismatches, Mismatch{
		Call: t.Call, Previous: previous.Call, At: at,
		PreviousTokens: len(previous.Prompt.TokenIDs) + len(previous.Response.TokenIDs),
	})
}
