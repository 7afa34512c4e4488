package access

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// kindRevoked is the kind of the documents of attempts whose keys are revoked.
const kindRevoked = "revoked-attempt"

// RevokedAttempt is an attempt whose keys are refused, those that are made from a secret
// and stand in no list.
type RevokedAttempt struct {
	RolloutID  string        `json:"rollout_id"`
	AttemptID  string        `json:"attempt_id,omitzero"` // "" is every attempt of the rollout
	RevokeTime agl.Timestamp `json:"revoke_time"`
	RevokedBy  string        `json:"revoked_by"`
}

// revokedAttempts returns the attempts whose keys are revoked.
func revokedAttempts(ctx context.Context, documents agl.DocumentStore) ([]RevokedAttempt, error) {
	page, err := documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: kindRevoked})
	if err != nil {
		return nil, err
	}
	revoked := make([]RevokedAttempt, len(page.Items))
	for i := range page.Items {
		if revoked[i], err = decodeRevoked(&page.Items[i]); err != nil {
			return nil, err
		}
	}
	return revoked, nil
}

func decodeRevoked(d *agl.Document) (revoked RevokedAttempt, err error) {
	if err := json.Unmarshal(d.Body, &revoked); err != nil {
		return revoked, agl.Errorf(agl.CodeInternal, "the document %s of a revoked attempt cannot be read: %w", d.ID, err)
	}
	return revoked, nil
}

// revokedPatience bounds how long a call waits to learn what is revoked. Calls of attempts go
// on while the store is away, by what was known last.
const revokedPatience = 500 * time.Millisecond

// Revocations know the attempts whose keys are revoked. Concurrent questions ask once. A nil
// one knows none. It is safe for concurrent use.
type Revocations struct {
	list func(ctx context.Context) ([]RevokedAttempt, error)
	ttl  time.Duration

	mu     sync.Mutex
	asking chan struct{} // closed when the question on its way is answered; nil without one
	until  time.Time     // known need not be asked for again
	known  map[agl.Claim]bool
}

// NewRevocations returns what goes by the answer of list for ttl, and by the last one while
// list fails.
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
	for time.Now().After(r.until) && ctx.Err() == nil {
		if r.asking == nil {
			r.ask(ctx)
			break
		}
		asking := r.asking
		r.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
	return r.known[attempt] || r.known[agl.Claim{RolloutID: attempt.RolloutID}]
}

// ask asks for the list. The lock is held, except while the question is on its way. Others
// wait for the answer, so that it is asked to the end when ctx is cancelled.
func (r *Revocations) ask(ctx context.Context) {
	asking := make(chan struct{})
	r.asking = asking
	asked := time.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokedPatience)
	found, err := r.list(ctx)
	cancel()
	r.mu.Lock()
	if err == nil {
		r.known = make(map[agl.Claim]bool, len(found))
		for _, one := range found {
			r.known[agl.Claim{RolloutID: one.RolloutID, AttemptID: one.AttemptID}] = true
		}
	}
	if r.asking == asking { // nobody has revoked one meanwhile
		r.until, r.asking = asked.Add(r.ttl), nil
		if err != nil {
			r.until = time.Now().Add(r.ttl) // a store that is away delays few calls
		}
	}
	close(asking)
}

// Forget makes later questions ask again.
func (r *Revocations) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until, r.asking = time.Time{}, nil
}
