package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agl-go/agl"
)

// kind is the kind of the documents that hold keys.
const kind = "key"

const maxWrites = 5 // attempts to write a document that others change, too

// Key describes a key, without its secret. The JSON form has times in Unix seconds.
type Key struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
	// RolloutID and AttemptID name the attempt of a key with the scope agent; "" for others.
	RolloutID  string         `json:"rollout_id,omitzero"`
	AttemptID  string         `json:"attempt_id,omitzero"`
	CreateTime agl.Timestamp  `json:"create_time"`
	CreatedBy  string         `json:"created_by"`
	ExpireTime *agl.Timestamp `json:"expire_time"` // null means never
	RevokeTime *agl.Timestamp `json:"revoke_time"` // null if it was not revoked
	RevokedBy  string         `json:"revoked_by,omitzero"`
	Rules                     // for its model calls
	Limits     Limits         `json:"limits,omitzero"`
	// Usage is what a key with limits has used. Only [Keys.List] sets it.
	Usage *Usage `json:"usage,omitzero"`
}

// storedKey is the document of a key.
type storedKey struct {
	Key
	SHA256 string `json:"sha256"` // of the whole key, in hex
}

// State says whether a key can be used.
type State = string

// The states of keys.
const (
	StateValid   State = "valid"
	StateExpired State = "expired"
	StateRevoked State = "revoked"
)

// State returns the state of the key.
func (k *Key) State(now time.Time) State {
	switch {
	case k.RevokeTime != nil:
		return StateRevoked
	case k.ExpireTime != nil && !now.Before(k.ExpireTime.Time()):
		return StateExpired
	default:
		return StateValid
	}
}

// caller returns the caller that uses the key, without the limits of its project.
func (k *Key) caller() (Caller, error) {
	i := Identity{ID: k.ID, Name: k.Name, Scopes: k.Scopes, ExpireTime: k.ExpireTime, RolloutID: k.RolloutID, AttemptID: k.AttemptID, Rules: k.Rules, Limits: k.Limits}
	return i.Caller()
}

// CreatedKey is a key with its text.
type CreatedKey struct {
	Key

	Text string `json:"key"`
}

// NewKey has the arguments of [Keys.Create].
type NewKey struct {
	Name   string
	Scopes Scope
	Expire time.Duration // how long it is valid; 0 means for ever
	// Attempt is required for the scope Agent, which must be the only scope then.
	Attempt agl.Null[agl.Claim]
	Rules   Rules
	Limits  Limits
	By      string // who creates it
}

func (n *NewKey) validate() error {
	switch {
	case n.Name == "" || len(n.Name) > maxName || !utf8.ValidString(n.Name):
		return agl.Errorf(agl.CodeInvalid, "name: got %q, must have 1 to %d bytes of UTF-8", n.Name, maxName)
	case n.Scopes == 0 || n.Scopes&^Any != 0:
		return agl.Errorf(agl.CodeInvalid, "scopes: got (%s), must be one or more of %s", n.Scopes, Any)
	case n.Expire < 0:
		return agl.Errorf(agl.CodeInvalid, "expire_seconds: got %v, must not be negative", n.Expire.Seconds())
	case n.Scopes&Agent != 0 && n.Scopes != Agent:
		return agl.Errorf(agl.CodeInvalid, "scopes: got (%s), agent must be the only scope: its key is for one attempt", n.Scopes)
	case (n.Scopes == Agent) != n.Attempt.Valid, n.Attempt.Valid && (n.Attempt.V.RolloutID == "" || n.Attempt.V.AttemptID == ""):
		return agl.Errorf(agl.CodeInvalid, "rollout_id and attempt_id: got %q and %q, must both be given for the scope agent, and for no other", n.Attempt.V.RolloutID, n.Attempt.V.AttemptID)
	}
	if err := n.Rules.Validate(""); err != nil {
		return err
	}
	return n.Limits.Validate()
}

// Keys manages the keys of a store.
type Keys struct {
	documents agl.DocumentStore
	cache     *Cache
	ledgers   ledgers
	project   *ProjectLimits // nil for no limits
	revoked   *Revocations
}

var _ Checker = (*Keys)(nil)

// NewKeys returns the keys that a store keeps as documents.
func NewKeys(documents agl.DocumentStore) *Keys { return NewProjectKeys(documents, nil) }

// NewProjectKeys returns the keys of a project whose callers share limits; nil means no limits.
func NewProjectKeys(documents agl.DocumentStore, limits *ProjectLimits) *Keys {
	k := &Keys{documents: documents, ledgers: ledgers{documents: documents, seed: maphash.MakeSeed(), began: time.Now()}, project: limits}
	k.cache = NewCache(k.lookup, StoreTTL)
	k.revoked = NewRevocations(k.RevokedAttempts, StoreTTL)
	return k
}

// Create creates a key. Its text is returned here and never again.
func (k *Keys) Create(ctx context.Context, p NewKey) (CreatedKey, error) {
	if err := p.validate(); err != nil {
		return CreatedKey{}, err
	}
	now := time.Now()
	key := Key{ID: strings.ToLower(rand.Text()[:idLength]), Name: p.Name, Scopes: p.Scopes.Names(), CreateTime: agl.TimestampOf(now), CreatedBy: p.By, Rules: p.Rules, Limits: p.Limits}
	if p.Expire > 0 {
		key.ExpireTime = new(agl.TimestampOf(now.Add(p.Expire)))
	}
	key.RolloutID, key.AttemptID = p.Attempt.V.RolloutID, p.Attempt.V.AttemptID
	text := prefix + key.ID + "_" + strings.ToLower(rand.Text()+rand.Text())
	if err := k.write(ctx, &storedKey{key, digest(text)}, 0); err != nil {
		return CreatedKey{}, err
	}
	return CreatedKey{key, text}, nil
}

// List returns all keys, the newest first.
func (k *Keys) List(ctx context.Context) ([]Key, error) {
	keys, err := agl.ListDocuments[Key](ctx, k.documents, kind)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(cmp.Compare(b.CreateTime, a.CreateTime), cmp.Compare(a.ID, b.ID)) })
	used, err := k.ledgers.usage(ctx)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if keys[i].Limits != (Limits{}) {
			keys[i].Usage = new(used[keys[i].ID])
		}
	}
	return keys, nil
}

// Revoke ends a key, at once on this server and within a second on others. Revoking it again changes nothing. An
// unknown id is CodeNotFound.
func (k *Keys) Revoke(ctx context.Context, id, by string) (Key, error) {
	for try := 1; ; try++ {
		stored, version, err := k.read(ctx, id)
		if err != nil || stored.RevokeTime != nil {
			return stored.Key, err
		}
		stored.RevokeTime, stored.RevokedBy = new(agl.TimestampOf(time.Now())), by
		err = k.write(ctx, &stored, version)
		if err == nil {
			k.cache.Forget()
			return stored.Key, nil
		}
		if !errors.Is(err, agl.ErrConflict) || try == maxWrites {
			return Key{}, err
		}
	}
}

// read returns a key and the version of its document; CodeNotFound.
func (k *Keys) read(ctx context.Context, id string) (stored storedKey, version int64, err error) {
	return agl.ReadDocument[storedKey](ctx, k.documents, kind, id)
}

func (k *Keys) write(ctx context.Context, stored *storedKey, version int64) error {
	return agl.WriteDocument(ctx, k.documents, agl.DocumentWrite{Kind: kind, ID: stored.ID, IfVersion: agl.Some(version)}, stored)
}

// Check implements [Checker].
func (k *Keys) Check(ctx context.Context, key string) (Caller, error) { return k.cache.Check(ctx, key) }

// lookup reads the caller of a key from the database.
func (k *Keys) lookup(ctx context.Context, key string) (Caller, error) {
	id, _ := keyID(key)
	stored, _, err := k.read(ctx, id)
	if err != nil && !errors.Is(err, agl.ErrNotFound) {
		return Caller{}, err
	}
	if subtle.ConstantTimeCompare([]byte(digest(key)), []byte(stored.SHA256)) != 1 {
		return Caller{}, errUnknown(id)
	}
	return k.caller(ctx, &stored.Key)
}

// caller returns the caller that uses a key, if the key is valid, with the limits of its project.
func (k *Keys) caller(ctx context.Context, key *Key) (Caller, error) {
	if state := key.State(time.Now()); state != StateValid {
		return Caller{}, errEnded(key.ID, state)
	}
	caller, err := key.caller()
	if err == nil {
		caller.Project, err = k.project.Get(ctx)
	}
	return caller, err
}

// find returns the caller of the key with this id, if the key is valid.
func (k *Keys) find(ctx context.Context, id string) (Caller, error) {
	stored, _, err := k.read(ctx, id)
	switch {
	case errors.Is(err, agl.ErrNotFound):
		return Caller{}, errUnknown(id)
	case err != nil:
		return Caller{}, err
	}
	return k.caller(ctx, &stored.Key)
}
