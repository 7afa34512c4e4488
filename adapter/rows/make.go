package rows

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Source says whose spans hold the model calls of triplets and trajectories.
type Source string

// The sources.
const (
	Proxy  Source = "proxy"
	Tracer Source = "tracer"
)

// Adapter returns the adapter that finds the calls.
func (s Source) Adapter() agl.Adapter[[]adapter.Triplet] {
	if s == Tracer {
		return adapter.TracerTriplets{}
	}
	return adapter.ProxyTriplets{}
}

// Triplets makes the rows of the spans of one attempt, one for each call. The spans were
// queried for the source's adapter, or are whole.
func Triplets(origin Origin, spans agl.ShortSpans, source Source) ([]Triplet, error) {
	triplets, err := agl.AdaptSpans(source.Adapter(), spans)
	if err != nil {
		return nil, err
	}
	made := make([]Triplet, 0, len(triplets))
	for i := range triplets {
		made = append(made, NewTriplet(origin, &triplets[i]))
	}
	return made, nil
}

// Trajectories makes the rows of the spans of one attempt. Left is the number of calls
// that are in none of them, as they lack tokens or a reply. The spans were queried for the
// source's adapter, or are whole.
func Trajectories(origin Origin, spans agl.ShortSpans, source Source) (made []Trajectory, left int, err error) {
	merged, err := agl.AdaptSpans(adapter.Trajectories{Source: source.Adapter()}, spans)
	if err != nil {
		return nil, 0, err
	}
	made = make([]Trajectory, 0, len(merged.Trajectories))
	for i := range merged.Trajectories {
		made = append(made, NewTrajectory(origin, i, &merged.Trajectories[i], merged.Reward))
	}
	return made, len(merged.Report.WithoutTokens) + len(merged.Report.Lost), nil
}

// Conversations makes the rows of the spans of one attempt, one for each call, whether
// a proxy, a tracer or both have recorded it.
func Conversations(origin Origin, spans []agl.Span) ([]Messages, error) {
	found, err := adapter.Messages{}.Adapt(adapter.OncePerCall(spans))
	if err != nil {
		return nil, err
	}
	reward, err := adapter.FinalReward(spans)
	if err != nil {
		return nil, err
	}
	made := make([]Messages, 0, len(found))
	for _, conversation := range found {
		row, err := NewMessages(origin, conversation, reward)
		if err != nil {
			return nil, err
		}
		made = append(made, row)
	}
	return made, nil
}
