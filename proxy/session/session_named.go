package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Named returns the open session of a name and a user, and starts one if there is none. user and
// consent go into the metadata of a session that it starts. known says that the manager had the
// session already, so that the store need not have answered.
func (m *Manager) Named(ctx context.Context, name, user, consent string) (s *Session, known bool, err error) {
	if strings.HasPrefix(name, keyNamePrefix) && len(name) == len(keyName("")) { // whoever knows the key could use the session
		return nil, false, agl.Errorf(agl.CodeInvalid, "session: got %q, which is the name of a session that has a key", name)
	}
	place := placeOf(name, user)
	for {
		m.mu.Lock()
		s, busy := m.byName[place], m.starting[place]
		if s == nil && busy == nil {
			m.starting[place] = make(chan struct{})
		}
		m.mu.Unlock()
		switch {
		case s != nil && m.endedElsewhere(ctx, s):
			continue
		case s != nil:
			return s, true, nil
		case busy != nil:
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return nil, false, ctx.Err()
			}
		}
		s, err = m.continued(ctx, name, user, consent)
		m.mu.Lock()
		close(m.starting[place])
		delete(m.starting, place)
		m.mu.Unlock()
		return s, false, err
	}
}

// maxTries bounds how many idempotency keys are tried for one name.
const maxTries = 1000

// continued returns the session of a name, which another proxy may have begun, or starts one.
// A name whose session has ended gets a new rollout.
func (m *Manager) continued(ctx context.Context, name, user, consent string) (*Session, error) {
	sum := sha256.Sum256([]byte(name + "\x00" + user))
	input, err := json.Marshal(map[string]string{"session": name})
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "session: got %.100q, must be UTF-8", name)
	}
	var metadata map[string]jsontext.Value
	if consent != "" {
		text, err := json.Marshal(consent)
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "consent: got %.100q, must be UTF-8", consent)
		}
		metadata = map[string]jsontext.Value{MetadataConsent: text}
	}
	// The key of a session is made from the ended one before it, so that a name can be used any number of times, and all proxies agree.
	after, other, looked := "", 0, false
	for range maxTries {
		key := "session-" + hex.EncodeToString(sum[:16]) + "-" + after + strconv.Itoa(other)
		s, begun, err := m.beginAs(ctx, name, NewSession{User: user, Input: input, Metadata: metadata}, key)
		switch {
		case begun != "" && errors.Is(err, agl.ErrIllegalState) || errors.Is(err, errDeleted):
			newest := ""
			if after == "" {
				if newest, err = m.ended(ctx, name, user); err != nil {
					return nil, err
				}
			}
			if id := cmp.Or(newest, begun); id != "" {
				after, other = id+"-", 0
				continue
			}
		case !errors.Is(err, agl.ErrConflict):
			return s, err
		case !looked:
			looked = true
			if s, err = m.open(ctx, name, user); s != nil || err != nil {
				return s, err
			}
		}
		other++
	}
	return nil, agl.Errorf(agl.CodeExhausted, "session %.100q has ended too often", name)
}

// beginAs is begin with the assignments that the session may have got, the newest first. The error is ErrConflict if it got another one,
// or began at a proxy with other settings.
func (m *Manager) beginAs(ctx context.Context, name string, p NewSession, key string) (s *Session, rolloutID string, err error) {
	for _, assigned := range m.assignments(cmp.Or(p.User, name)) {
		if s, rolloutID, err = m.begin(ctx, name, p, assigned, key); !errors.Is(err, agl.ErrConflict) {
			break
		}
	}
	return s, rolloutID, err
}

// ended returns the rollout of the newest session of a name and a user that has ended, or "" if it is not found.
func (m *Manager) ended(ctx context.Context, name, user string) (rolloutID string, err error) {
	const enough = 100 // without a user, those of all users have the label
	page, err := m.labelled(ctx, name, user, agl.QueryRolloutsParams{Paging: agl.Paging{Limit: enough}})
	if err != nil {
		return "", err
	}
	for i := range page.Items {
		r := &page.Items[i]
		if of, _ := agl.Attributes(r.Metadata).GetString(MetadataUser); of == user && r.Status.Finished() {
			return r.RolloutID, nil
		}
	}
	return "", nil
}

// labelled returns the sessions of a name, and of a user if there is one, the newest first.
func (m *Manager) labelled(ctx context.Context, name, user string, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	p.Labels = []agl.Label{labelOf(name)}
	if user != "" {
		p.Labels = append(p.Labels, agl.Label{Name: MetadataUser, Value: user})
	}
	p.SortBy, p.Order = "start_time", agl.Descending
	return m.config.Store.QueryRollouts(ctx, p)
}

// open returns the open session of a name and a user from the store, or nil if there is none.
func (m *Manager) open(ctx context.Context, name, user string) (*Session, error) {
	page, err := m.labelled(ctx, name, user, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}, Paging: agl.Paging{Limit: -1},
	})
	if err != nil {
		return nil, err
	}
	for i := range page.Items {
		if of, _ := agl.Attributes(page.Items[i].Metadata).GetString(MetadataUser); of != user {
			continue
		}
		if s, err := m.add(&page.Items[i]); err == nil {
			return s, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// maxLabel is how long a label may be by which rollouts are found, in bytes.
const maxLabel = 256

// metadataHash is the key of the SHA-256 of a name that is longer than maxLabel.
const metadataHash = MetadataSession + "_hash"

// labelOf returns what the sessions of a name are found by in the store.
func labelOf(name string) agl.Label {
	if len(name) <= maxLabel {
		return agl.Label{Name: MetadataSession, Value: name}
	}
	sum := sha256.Sum256([]byte(name))
	return agl.Label{Name: metadataHash, Value: hex.EncodeToString(sum[:])}
}

// Find returns the rollout of the newest session of a name, open or ended. With an empty user
// it searches the sessions of all users. The error is ErrNotFound if there is none.
func (m *Manager) Find(ctx context.Context, name, user string) (rolloutID string, err error) {
	page, err := m.labelled(ctx, name, user, agl.QueryRolloutsParams{Paging: agl.Paging{Limit: 1}})
	if err != nil {
		return "", err
	}
	if len(page.Items) == 0 {
		return "", agl.Errorf(agl.CodeNotFound, "there is no session %.100q", name)
	}
	return page.Items[0].RolloutID, nil
}

// confirmAfter is how long a session may have no call here before its next one asks the store whether another proxy has ended it
// meanwhile. confirmTimeout bounds that request, and confirmPause is the time without such requests after one that failed.
const (
	confirmAfter   = 2 * time.Second
	confirmTimeout = time.Second
	confirmPause   = 30 * time.Second
)

// endedElsewhere reports whether an open session has ended otherwise than by this manager, and forgets it then.
func (m *Manager) endedElsewhere(ctx context.Context, s *Session) bool {
	m.mu.Lock()
	now := time.Now()
	known := s.end != "" || s.running > 0 || now.Sub(s.last) < confirmAfter || now.Before(m.unconfirmed)
	m.mu.Unlock()
	if known {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	r, err := m.config.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: s.RolloutID})
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, agl.ErrNotFound):
		m.unconfirmed = time.Now().Add(confirmPause)
		return false
	case err == nil && s.open(&r):
		return false
	}
	m.close(s, EndCall)
	m.forget(s)
	return true
}

// open reports whether the rollout of a session says that it has not ended.
func (s *Session) open(r *agl.AttemptedRollout) bool {
	return !r.Status.Finished() && r.Attempt != nil && r.Attempt.AttemptID == s.AttemptID
}
