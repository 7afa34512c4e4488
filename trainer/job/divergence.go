package job

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/trainer/engine"
)

// divergence measures how far the replies of a session are from another version of the model in training.
type divergence struct{ engine *engine.Engine }

// of returns the mean of log p − log q over the tokens that the model has sampled in a session, p of the version that answered and q of
// the given one; ok is false if there are none at temperature 1.
func (d divergence) of(ctx context.Context, version string, spans []agl.Span) (kl float64, ok bool, err error) {
	merged, err := adapter.Trajectories{Keep: func(c adapter.Call) bool { return c.Model == d.engine.Model().Name }}.Adapt(spans)
	if err != nil {
		return 0, false, agl.Errorf(agl.CodeInvalid, "the session cannot be read: %w", err)
	}
	n := 0
	for _, t := range merged.Trajectories {
		tokens := t.TokenIDs
		if limit := d.engine.Context(version); limit > 0 && len(tokens) >= limit {
			tokens = tokens[:limit-1]
		}
		if len(tokens) < 2 {
			continue
		}
		other, err := d.engine.Logprobs(ctx, version, tokens)
		if err != nil {
			return 0, false, err
		}
		for _, reply := range t.Replies {
			if reply.Sampling != "" || !reply.HasLogprobs() { // its log-probabilities are not those of the samples
				continue
			}
			for i := max(reply.Start, 1); i < min(reply.End, len(tokens)); i++ {
				kl += float64(t.Logprobs[i]) - float64(other[i-1])
				n++
			}
		}
	}
	return kl / float64(max(n, 1)), n > 0, nil
}
