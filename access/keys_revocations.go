package access

import (
	"context"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// kindRevoked is the kind of the documents that name attempts whose keys are revoked.
const kindRevoked = "revoked-attempt"

// RevokedAttempt is an attempt whose keys are refused. These keys are derived from a secret, so no list has them.
type RevokedAttempt struct {
	RolloutID  string        `json:"rollout_id"`
	AttemptID  string        `json:"attempt_id,omitzero"` // "" means every attempt of the rollout
	RevokeTime agl.Timestamp `json:"revoke_time"`
	RevokedBy  string        `json:"revoked_by"`
}

// revokedTimeout bounds how long a model call waits for the list of revocations. While the store is away, calls
// continue with the last list.
const revokedTimeout = 500 * time.Millisecond

// Revocations caches which attempts have revoked keys. Concurrent calls share one request for the list. A nil one has
// no revocations. It is safe for concurrent use.
type Revocations struct {
	list func(ctx context.Context) ([]RevokedAttempt, error)
	ttl  time.Duration

	mu    sync.Mutex
	until time.Time // when known must be read again
	known map[agl.Claim]bool
}

// NewRevocations returns revocations that use the answer of list for ttl, and the last answer while list fails.
func NewRevocations(list func(ctx context.Context) ([]RevokedAttempt, error), ttl time.Duration) *Revocations {
	return &Revocations{list: list, ttl: ttl}
}

// Revoked reports whether the keys of an attempt are revoked.
func (r *Revocations) Revoked(ctx context.Context, attempt agl.Claim) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.until) {
		r.read(ctx)
	}
	return r.known[attempt] || r.known[agl.Claim{RolloutID: attempt.RolloutID}]
}

// read requests the list; the caller holds the lock. Other calls wait for it, so the request continues when ctx is cancelled.
func (r *Revocations) read(ctx context.Context) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokedTimeout)
	defer cancel()
	found, err := r.list(ctx)
	if err != nil {
		r.until = time.Now().Add(r.ttl) // so that a store that is away delays few calls
		return
	}
	r.until, r.known = asked.Add(r.ttl), make(map[agl.Claim]bool, len(found))
	for _, one := range found {
		r.known[agl.Claim{RolloutID: one.RolloutID, AttemptID: one.AttemptID}] = true
	}
}

// Forget makes later calls read the list again.
func (r *Revocations) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Time{}
}
