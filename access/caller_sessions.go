package access

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

// sessionKind is the kind of the documents that hold sessions.
const sessionKind = "session"

const (
	// SessionTTL is how long a browser stays signed in.
	SessionTTL = 12 * time.Hour
	// maxSessions is the number of sessions that one caller may have; a further sign-in ends the oldest.
	maxSessions = 50
)

// Sessions keeps the sessions of browsers that are signed in. It stores them as documents, so that every server of
// the database knows them, and stores only a MAC, so that nobody can use a session by reading the database.
type Sessions struct {
	documents agl.DocumentStore
	keys      *Keys
	secret    []byte
	grants    Grants
	cache     *Cache
}

var _ Checker = (*Sessions)(nil)

// session is the document of a session.
type session struct {
	MAC string `json:"hmac"` // of the session's text, keyed with the server's token, in hex
	// Caller is who signed in. If that was with a key, the session has the scopes that the key has now.
	Caller Identity `json:"caller"`
	// Groups are those of a caller whom a provider knows. The session has the scopes that they have now.
	Groups     []string      `json:"groups,omitempty"`
	CreateTime agl.Timestamp `json:"create_time"`
	ExpireTime agl.Timestamp `json:"expire_time"`
}

func (s *session) over(now time.Time) bool { return !now.Before(s.ExpireTime.Time()) }

// NewSessions returns the sessions that a store keeps as documents. keys may be nil. grants says what the
// groups of a sign-in may do. All sessions end when the server's token changes.
func NewSessions(documents agl.DocumentStore, keys *Keys, token string, grants Grants) *Sessions {
	s := &Sessions{documents: documents, keys: keys, secret: []byte(token), grants: grants}
	s.cache = NewCache(s.lookup, StoreTTL)
	return s
}

// Begin signs a caller in until the returned time at the latest. The text is the only proof of the session; it is
// never returned again.
func (s *Sessions) Begin(ctx context.Context, caller *Caller) (text string, until time.Time, err error) {
	now := time.Now()
	until = now.Add(SessionTTL)
	if !caller.Expire.IsZero() && caller.Expire.Before(until) {
		until = caller.Expire
	}
	if err := s.makeRoom(ctx, caller, now); err != nil {
		return "", until, err
	}
	id := strings.ToLower(rand.Text()[:idLength])
	text = prefix + id + "_" + strings.ToLower(rand.Text()+rand.Text())
	body := &session{MAC: s.mac(text), Caller: caller.Identity(), Groups: caller.Groups, CreateTime: agl.TimestampOf(now), ExpireTime: agl.TimestampOf(until)}
	return text, until, agl.WriteDocument(ctx, s.documents, agl.DocumentWrite{Kind: sessionKind, ID: id, IfVersion: agl.Some[int64](0), Quiet: true}, body)
}

// makeRoom deletes expired sessions, and the oldest ones of a caller who has too many.
func (s *Sessions) makeRoom(ctx context.Context, caller *Caller, now time.Time) error {
	page, err := s.documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: sessionKind})
	if err != nil {
		return err
	}
	type dated struct {
		id      string
		created agl.Timestamp
	}
	var gone []string
	var own []dated
	for i := range page.Items {
		var kept session
		if err := page.Items[i].Decode(&kept); err != nil {
			return err
		}
		switch {
		case kept.over(now):
			gone = append(gone, page.Items[i].ID)
		case kept.Caller.ID == caller.KeyID && kept.Caller.Name == caller.Name:
			own = append(own, dated{page.Items[i].ID, kept.CreateTime})
		}
	}
	slices.SortFunc(own, func(a, b dated) int { return cmp.Compare(a.created, b.created) })
	for ; len(own) >= maxSessions; own = own[1:] {
		gone = append(gone, own[0].id)
	}
	for _, id := range gone {
		if err := s.remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a session. It may be gone already.
func (s *Sessions) remove(ctx context.Context, id string) error {
	_, err := s.documents.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{Kind: sessionKind, ID: id, Delete: true, Quiet: true}}})
	if errors.Is(err, agl.ErrNotFound) {
		return nil
	}
	return err
}

// End signs out, at once on this server and within a second on others. Ending a session that is over is no error.
func (s *Sessions) End(ctx context.Context, text string) error {
	if _, err := s.read(ctx, text); err != nil {
		if agl.ErrorCode(err) == agl.CodeUnauthorized {
			return nil
		}
		return err
	}
	id, _ := keyID(text)
	err := s.remove(ctx, id)
	s.cache.Forget()
	return err
}

// Check implements [Checker] for the text of a session. A session that began with a key has the key's scopes and
// limits, and ends with the key. One that began at a provider has the scopes of its groups, and ends when they have none.
func (s *Sessions) Check(ctx context.Context, text string) (Caller, error) {
	return s.cache.Check(ctx, text)
}

// read returns the session with this text, also one whose groups have no scopes now.
func (s *Sessions) read(ctx context.Context, text string) (kept session, err error) {
	id, ok := keyID(text)
	if !ok {
		return kept, errOver()
	}
	kept, _, err = agl.ReadDocument[session](ctx, s.documents, sessionKind, id)
	switch {
	case errors.Is(err, agl.ErrNotFound):
		return kept, errOver()
	case err != nil:
		return kept, err
	}
	if !hmac.Equal([]byte(s.mac(text)), []byte(kept.MAC)) || kept.over(time.Now()) {
		return kept, errOver()
	}
	return kept, nil
}

func (s *Sessions) lookup(ctx context.Context, text string) (Caller, error) {
	kept, err := s.read(ctx, text)
	if err != nil {
		return Caller{}, err
	}
	caller, err := kept.Caller.Caller()
	switch {
	case err != nil:
	case caller.KeyID != "":
		if s.keys == nil {
			return Caller{}, errOver()
		}
		caller, err = s.keys.find(ctx, caller.KeyID)
	case len(kept.Groups) > 0 || strings.HasPrefix(caller.Name, "oidc:"): // versions before kept no groups
		if caller.Scopes = s.grants.Of(kept.Groups...); caller.Scopes == 0 {
			return Caller{}, errOver()
		}
	}
	if until := kept.ExpireTime.Time(); err == nil && (caller.Expire.IsZero() || until.Before(caller.Expire)) {
		caller.Expire = until
	}
	return caller, err
}

func (s *Sessions) mac(text string) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte("agl session " + text))
	return hex.EncodeToString(mac.Sum(nil))
}

func errOver() error {
	return agl.Errorf(agl.CodeUnauthorized, "the session is over; sign in again")
}
