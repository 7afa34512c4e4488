package rows

import (
	"iter"

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
	made := []Messages{}
	for row, err := range EachConversation(origin, spans, nil) {
		if err != nil {
			return nil, err
		}
		made = append(made, row)
	}
	return made, nil
}

// ConversationAttributes returns the names of the attributes that [Conversations] reads, for [agl.QuerySpansParams].
func ConversationAttributes() []string {
	return append(adapter.Messages{}.Attributes(), adapter.RewardAttributes()...)
}

// ShortConversationAttributes returns those that spans need for [EachConversation].
func ShortConversationAttributes() []string {
	return append(adapter.RewardAttributes(), agl.AttrGenAIResponseID, "tool*")
}

// EachConversation yields the [Conversations] of an attempt whose calls, together, are too large for memory, see
// [adapter.ReadConversations].
func EachConversation(origin Origin, spans []agl.Span, each iter.Seq2[*agl.Span, error]) iter.Seq2[Messages, error] {
	return func(yield func(Messages, error) bool) {
		reward, err := adapter.FinalReward(spans)
		if err != nil {
			yield(Messages{}, err)
			return
		}
		for conversation, err := range adapter.EachConversation(spans, each) {
			var row Messages
			if err == nil {
				row, err = newMessages(origin, conversation, reward)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
