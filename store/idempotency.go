package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/agl-go/agl"
)

// keyed is the idempotency key of a command; nil when it has none.
type keyed struct {
	scope       string
	fingerprint string
}

// newKeyed makes the key of an operation; path are the ids that are part of its
// scope, appendArgs writes the arguments that a repeat must not change.
func newKeyed(operation, key string, path []string, appendArgs func([]byte) []byte) *keyed {
	if key == "" {
		return nil
	}
	sum := sha256.Sum256(appendArgs(nil))
	return &keyed{
		scope:       operation + " " + strings.Join(path, "/") + " " + key,
		fingerprint: hex.EncodeToString(sum[:16]),
	}
}

// dequeueKey is the key of a dequeue. How long it waits is no part of what it is.
func dequeueKey(p agl.DequeueRolloutsParams) *keyed {
	return newKeyed("dequeue", p.IdempotencyKey, nil, func(dst []byte) []byte {
		dst = strconv.AppendInt(dst, int64(p.Limit), 10)
		return append(append(dst, ' '), p.WorkerID.V...)
	})
}

func (k *keyed) load(want *LoadParams) {
	if k != nil {
		want.Keys = append(want.Keys, k.scope)
	}
}

// replay returns what the first command with the key made, nil when this is the
// first, ErrConflict when the first had other arguments.
func (k *keyed) replay(w *work) (*IdempotencyRecord, error) {
	if k == nil {
		return nil, nil //nolint:nilnil // no record is no error
	}
	record, found := w.keys[k.scope]
	switch {
	case !found:
		return nil, nil //nolint:nilnil // no record is no error
	case record.Fingerprint != k.fingerprint && record.Fingerprint != revokedFingerprint:
		return nil, agl.Errorf(agl.CodeConflict,
			"the idempotency key %q was used before with other arguments", k.scope[strings.LastIndexByte(k.scope, ' ')+1:])
	}
	return &record, nil
}

func (k *keyed) record(w *work, r IdempotencyRecord) {
	if k == nil {
		return
	}
	r.Scope, r.Fingerprint, r.CreateTime = k.scope, k.fingerprint, w.now
	w.keys[k.scope] = r
	w.changes.Keys = append(w.changes.Keys, r)
}

func (k *keyed) recordAttempts(w *work, made []agl.AttemptedRollout) {
	if k == nil {
		return
	}
	keys := make([]AttemptKey, len(made))
	for i := range made {
		keys[i].RolloutID = made[i].RolloutID
		if made[i].Attempt != nil {
			keys[i].AttemptID = made[i].Attempt.AttemptID
		}
	}
	k.record(w, IdempotencyRecord{Made: keys})
}

// revokedFingerprint marks the record of a revoked key: whatever the arguments,
// the operation with the key has made nothing and makes nothing.
const revokedFingerprint = ""

func (k *keyed) revoke(w *work) {
	revoked := IdempotencyRecord{Scope: k.scope, Fingerprint: revokedFingerprint, CreateTime: w.now}
	w.keys[k.scope] = revoked
	w.changes.Keys = append(w.changes.Keys, revoked)
}

func (k *keyed) forget(w *work) {
	if k == nil {
		return
	}
	delete(w.keys, k.scope)
	w.changes.ForgottenKeys = append(w.changes.ForgottenKeys, k.scope)
}

// replayAttempts reads what a keyed command made, as it is now; what is gone
// meanwhile is left out.
func (s *Store) replayAttempts(ctx context.Context, record *IdempotencyRecord) ([]agl.AttemptedRollout, error) {
	if len(record.Made) == 0 {
		return nil, nil
	}
	ids := make([]string, len(record.Made))
	made := make(map[string]string, len(record.Made))
	for i, key := range record.Made {
		ids[i] = key.RolloutID
		made[key.RolloutID] = key.AttemptID
	}
	found, err := s.driver.Rollouts(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := found[:0]
	for _, r := range found {
		id := made[r.RolloutID]
		switch {
		case id == "":
			r.Attempt = nil
		case r.Attempt == nil || r.Attempt.AttemptID != id:
			attempts, err := s.driver.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: r.RolloutID, Paging: agl.Paging{Limit: -1}})
			if err != nil {
				return nil, err
			}
			r.Attempt = nil
			for i := range attempts.Items {
				if attempts.Items[i].AttemptID == id {
					r.Attempt = &attempts.Items[i]
				}
			}
			if r.Attempt == nil {
				continue
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// replayAttempt is replayAttempts for a command that made one.
func (s *Store) replayAttempt(ctx context.Context, record *IdempotencyRecord) (agl.AttemptedRollout, error) {
	found, err := s.replayAttempts(ctx, record)
	switch {
	case err != nil:
		return agl.AttemptedRollout{}, err
	case len(found) == 0:
		return agl.AttemptedRollout{}, errRollout(record.Made[0].RolloutID)
	}
	return found[0], nil
}

// flights makes a repeat wait while the first command with its key is under
// way.
type flights struct {
	mu       sync.Mutex
	underWay map[string]chan struct{}
}

func (f *flights) init() { f.underWay = map[string]chan struct{}{} }

// enter waits for the key's turn; land ends it.
func (f *flights) enter(ctx context.Context, closing <-chan struct{}, k *keyed) (land func(), err error) {
	if k == nil {
		return func() {}, nil
	}
	for {
		f.mu.Lock()
		other, taken := f.underWay[k.scope]
		if !taken {
			landed := make(chan struct{})
			f.underWay[k.scope] = landed
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.underWay, k.scope)
				f.mu.Unlock()
				close(landed)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-closing:
			return nil, errClosed()
		}
	}
}
