package rows

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Source says which spans hold the model calls.
type Source string

// The sources.
const (
	Proxy  Source = "proxy"  // those of the LLM proxy
	Tracer Source = "tracer" // those that were recorded inside the agent
)

// Adapter returns the adapter that finds the calls.
func (s Source) Adapter() agl.Adapter[[]adapter.Triplet] {
	if s == Tracer {
		return adapter.TracerTriplets{}
	}
	return adapter.ProxyTriplets{}
}

// Triplets returns a row for each call in the spans of one attempt. The spans were queried for the source's adapter,
// or are whole.
func Triplets(origin Origin, spans agl.ShortSpans, source Source) ([]Triplet, error) {
	triplets, err := agl.AdaptSpans(source.Adapter(), spans)
	if err != nil {
		return nil, err
	}
	made := make([]Triplet, 0, len(triplets))
	for i := range triplets {
		made = append(made, newTriplet(origin, &triplets[i]))
	}
	return made, nil
}

// Trajectories returns a row for each trajectory in the spans of one attempt. left is the number of calls that are in
// no trajectory because they have no tokens or no reply. The spans were queried for the source's adapter, or are
// whole.
func Trajectories(origin Origin, spans agl.ShortSpans, source Source) (made []Trajectory, left int, err error) {
	merged, err := agl.AdaptSpans(adapter.Trajectories{Source: source.Adapter()}, spans)
	if err != nil {
		return nil, 0, err
	}
	made = make([]Trajectory, 0, len(merged.Trajectories))
	for i := range merged.Trajectories {
		made = append(made, newTrajectory(origin, i, &merged.Trajectories[i], merged.Reward))
	}
	return made, len(merged.Report.WithoutTokens) + len(merged.Report.Lost), nil
}

// Conversations returns a row for each call in the spans of one attempt, whether a proxy, a tracer or both recorded
// it.
func Conversations(origin Origin, spans []agl.Span) ([]Messages, error) {
	found, err := adapter.Messages{OwnCalls: true}.Adapt(adapter.OncePerCall(spans))
	if err != nil {
		return nil, err
	}
	reward, err := adapter.FinalReward(spans)
	if err != nil {
		return nil, err
	}
	made := make([]Messages, 0, len(found))
	for _, conversation := range found {
		row, err := newMessages(origin, conversation, reward)
		if err != nil {
			return nil, err
		}
		made = append(made, row)
	}
	return made, nil
}
