package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// maxRevoked bounds the revoked attempts. They are kept for ever, because nothing says how long a key that a proxy
// has derived from its secret stays valid.
const maxRevoked = 10_000

// RevokeAttempt ends the keys of an attempt, at once on this server and within a second on others. An empty attempt
// id ends those of all attempts of the rollout, including later ones. Revoking them again changes nothing. The ids
// need not be known: a key can leak before its attempt is stored.
func (k *Keys) RevokeAttempt(ctx context.Context, of agl.Claim, by string) (RevokedAttempt, error) {
	if of.RolloutID == "" || max(len(of.RolloutID), len(of.AttemptID)) > maxAttemptID {
		return RevokedAttempt{}, agl.Errorf(agl.CodeInvalid, "rollout_id and attempt_id: got %.100q and %.100q, must be a rollout, and an attempt of it or none, of at most %d bytes", of.RolloutID, of.AttemptID, maxAttemptID)
	}
	id := revokedID(of)
	revoked, _, err := agl.ReadDocument[RevokedAttempt](ctx, k.documents, kindRevoked, id)
	if !errors.Is(err, agl.ErrNotFound) {
		return revoked, err
	}
	page, err := k.documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: kindRevoked, Limit: 1})
	if err != nil {
		return RevokedAttempt{}, err
	}
	if page.Total >= maxRevoked {
		return RevokedAttempt{}, agl.Errorf(agl.CodeExhausted, "the keys of %d attempts are revoked already: give the proxies another key_secret", page.Total)
	}
	revoked = RevokedAttempt{of.RolloutID, of.AttemptID, agl.TimestampOf(time.Now()), by}
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
	return agl.ListDocuments[RevokedAttempt](ctx, k.documents, kindRevoked)
}

// Revocations returns the cached revocations of the store; nil for nil keys.
func (k *Keys) Revocations() *Revocations {
	if k == nil {
		return nil
	}
	return k.revoked
}

const maxAttemptID = 1024 // bytes, as in paths of proxies

// revokedID returns the id of a document: a digest, since ids of attempts may be longer than ids of documents.
func revokedID(of agl.Claim) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(of.RolloutID)) + ":" + of.RolloutID + of.AttemptID))
	return hex.EncodeToString(sum[:])
}
