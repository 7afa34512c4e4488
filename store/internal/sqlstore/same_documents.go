package sqlstore

import (
	"bytes"
	"slices"

	"github.com/agl-go/agl"
)

// SameDocuments reports whether two rollouts have equal documents and configs. Unchanged
// documents usually share memory, which bytes.Equal notices.
func SameDocuments(a, b *agl.Rollout) bool {
	return same(a.Input, b.Input) && same(a.Metadata, b.Metadata) &&
		a.Config.TimeoutSeconds == b.Config.TimeoutSeconds && a.Config.UnresponsiveSeconds == b.Config.UnresponsiveSeconds &&
		a.Config.MaxAttempts == b.Config.MaxAttempts && slices.Equal(a.Config.RetryCondition, b.Config.RetryCondition)
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
