package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// idempotencyKey is the key of a command; nil if it has none.
type idempotencyKey struct {
	scope       string
	fingerprint string
}

// newKey returns the key of an operation. path holds the ids that belong to its scope; appendArgs writes the
// arguments that a repeat must not change.
func newKey(operation, key string, path []string, appendArgs func([]byte) []byte) *idempotencyKey {
	if key == "" {
		return nil
	}
	sum := sha256.Sum256(appendArgs(nil))
	return &idempotencyKey{
		scope:       operation + " " + strings.Join(path, "/") + " " + key,
		fingerprint: hex.EncodeToString(sum[:16]),
	}
}

// dequeueKey returns the key of a dequeue. A repeat may have another timeout.
func dequeueKey(p agl.DequeueRolloutsParams) *idempotencyKey {
	return newKey("dequeue", p.IdempotencyKey, nil, func(dst []byte) []byte {
		dst = strconv.AppendInt(dst, int64(p.Limit), 10)
		return append(append(dst, ' '), p.WorkerID.V...)
	})
}

func (k *idempotencyKey) load(want *driver.LoadParams) {
	if k != nil {
		want.Keys = append(want.Keys, k.scope)
	}
}

// replay returns the record of the first command with the key: nil if this is the first, ErrConflict if the first had
// other arguments.
func (k *idempotencyKey) replay(w *unitOfWork) (*driver.IdempotencyRecord, error) {
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

func (k *idempotencyKey) record(w *unitOfWork, r driver.IdempotencyRecord) {
	if k == nil {
		return
	}
	r.Scope, r.Fingerprint, r.CreateTime = k.scope, k.fingerprint, w.now
	w.keys[k.scope] = r
	w.changes.Keys = append(w.changes.Keys, r)
}

func (k *idempotencyKey) recordAttempts(w *unitOfWork, made []agl.AttemptedRollout) {
	if k == nil {
		return
	}
	keys := make([]driver.AttemptKey, len(made))
	for i := range made {
		keys[i].RolloutID = made[i].RolloutID
		if made[i].Attempt != nil {
			keys[i].AttemptID = made[i].Attempt.AttemptID
		}
	}
	k.record(w, driver.IdempotencyRecord{Made: keys})
}

// revokedFingerprint marks the record of a revoked key: whatever the arguments, the operation with this key has
// created nothing and never will.
const revokedFingerprint = ""

func (k *idempotencyKey) revoke(w *unitOfWork) {
	revoked := driver.IdempotencyRecord{Scope: k.scope, Fingerprint: revokedFingerprint, CreateTime: w.now}
	w.keys[k.scope] = revoked
	w.changes.Keys = append(w.changes.Keys, revoked)
}

func (k *idempotencyKey) forget(w *unitOfWork) {
	if k == nil {
		return
	}
	delete(w.keys, k.scope)
	w.changes.ForgottenKeys = append(w.changes.ForgottenKeys, k.scope)
}

// keyLocks makes a repeat wait while the first command with its key runs.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // by scope; closed on release
}

func (l *keyLocks) init() { l.held = map[string]chan struct{}{} }

// lock waits until no other call holds the key.
func (l *keyLocks) lock(ctx context.Context, closing <-chan struct{}, k *idempotencyKey) (unlock func(), err error) {
	if k == nil {
		return func() {}, nil
	}
	for {
		l.mu.Lock()
		other, taken := l.held[k.scope]
		if !taken {
			released := make(chan struct{})
			l.held[k.scope] = released
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, k.scope)
				l.mu.Unlock()
				close(released)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-closing:
			return nil, errClosed()
		}
	}
}
