package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
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
	w.setKey(r)
}

// setKey writes a record in place of what the batch has done with its scope before.
func (w *unitOfWork) setKey(r driver.IdempotencyRecord) {
	w.dropKey(r.Scope)
	w.keys[r.Scope] = r
	w.changes.Keys = append(w.changes.Keys, r)
}

func (w *unitOfWork) dropKey(scope string) {
	c := &w.changes
	c.Keys = slices.DeleteFunc(c.Keys, func(r driver.IdempotencyRecord) bool { return r.Scope == scope })
	c.ForgottenKeys = slices.DeleteFunc(c.ForgottenKeys, func(forgotten string) bool { return forgotten == scope })
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
	w.setKey(driver.IdempotencyRecord{Scope: k.scope, Fingerprint: revokedFingerprint, CreateTime: w.now})
}

func (k *idempotencyKey) forget(w *unitOfWork) {
	if k == nil {
		return
	}
	w.dropKey(k.scope)
	delete(w.keys, k.scope)
	w.changes.ForgottenKeys = append(w.changes.ForgottenKeys, k.scope)
}

// The claims of a dequeue go out in an answer, and again in an answer to each repeat of its request. A server takes back the
// claims of an answer that was lost; while another answer has them, somebody may work on them. The record of a dequeue has the
// number of its answers where that of a bundle has its id; without one it is 1.

// answerAgain counts one more answer with the claims of a record.
func (w *unitOfWork) answerAgain(r driver.IdempotencyRecord) {
	if len(r.Made) > 0 {
		w.setAnswers(r, answersWith(&r)+1)
	}
}

// answeredAgain uncounts the lost answer with these claims, and reports whether another one has them.
func (k *idempotencyKey) answeredAgain(w *unitOfWork, claims []driver.AttemptKey) bool {
	if k == nil {
		return false
	}
	r, found := w.keys[k.scope]
	n := answersWith(&r)
	if !found || n == 1 || !slices.Contains(r.Made, claims[0]) {
		return false
	}
	w.setAnswers(r, n-1)
	return true
}

func answersWith(r *driver.IdempotencyRecord) int {
	n, _ := strconv.Atoi(r.ResourcesID)
	return max(n, 1)
}

func (w *unitOfWork) setAnswers(r driver.IdempotencyRecord, n int) {
	r.ResourcesID = strconv.Itoa(n)
	w.setKey(r)
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
