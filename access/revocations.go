package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// kindRevoked is the kind of the documents of attempts whose keys are revoked.
const kindRevoked = "revoked-attempt"

// maxRevoked bounds them. They are kept for ever: nothing says how long a key is valid that
// a proxy has made from its secret.
const maxRevoked = 10_000

// RevokedAttempt is an attempt whose keys are refused, those that are made from a secret
// and stand in no list.
type RevokedAttempt struct {
	RolloutID  string        `json:"rollout_id"`
	AttemptID  string        `json:"attempt_id,omitzero"` // "" is every attempt of the rollout
	RevokeTime agl.Timestamp `json:"revoke_time"`
	RevokedBy  string        `json:"revoked_by"`
}

// RevokeAttempt ends the keys of an attempt: at once here, within a second on other servers.
// An empty attempt id ends those of all attempts of the rollout, later ones too. Revoking
// them again changes nothing. The ids need not be known: a key can leak before its attempt
// is stored.
func (k *Keys) RevokeAttempt(ctx context.Context, of agl.Claim, by string) (RevokedAttempt, error) {
	if of.RolloutID == "" || max(len(of.RolloutID), len(of.AttemptID)) > maxAttemptID {
		return RevokedAttempt{}, agl.Errorf(agl.CodeInvalid, "rollout_id and attempt_id: got %.100q and %.100q, must be a rollout, and an attempt of it or none, of at most %d bytes", of.RolloutID, of.AttemptID, maxAttemptID)
	}
	id := revokedID(of)
	switch document, err := k.documents.GetDocument(ctx, kindRevoked, id); {
	case err == nil:
		return decodeRevoked(&document)
	case !errors.Is(err, agl.ErrNotFound):
		return RevokedAttempt{}, err
	}
	page, err := k.documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: kindRevoked, Limit: 1})
	if err != nil {
		return RevokedAttempt{}, err
	}
	if page.Total >= maxRevoked {
		return RevokedAttempt{}, agl.Errorf(agl.CodeExhausted, "the keys of %d attempts are revoked already: give the proxies another key_secret", page.Total)
	}
	revoked := RevokedAttempt{of.RolloutID, of.AttemptID, agl.TimestampOf(time.Now()), by}
	body, err := json.Marshal(&revoked)
	if err != nil {
		return RevokedAttempt{}, agl.Errorf(agl.CodeInvalid, "rollout_id and attempt_id: %w", err)
	}
	_, err = k.documents.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{Kind: kindRevoked, ID: id, Body: body}}})
	k.revoked.Forget()
	return revoked, err
}

// RevokedAttempts returns the attempts whose keys are revoked.
func (k *Keys) RevokedAttempts(ctx context.Context) ([]RevokedAttempt, error) {
	page, err := k.documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: kindRevoked})
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

// Revocations returns what knows whether the keys of an attempt are revoked.
func (k *Keys) Revocations() *Revocations {
	if k == nil {
		return nil
	}
	return k.revoked
}

const maxAttemptID = 1024 // bytes, as in paths of proxies

// revokedID is the id of a document; ids of attempts may be longer than those of documents.
func revokedID(of agl.Claim) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(of.RolloutID)) + ":" + of.RolloutID + of.AttemptID))
	return hex.EncodeToString(sum[:])
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
