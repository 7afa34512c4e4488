// Package session turns the traffic of live programs into rollouts. Each session is a rollout
// with one attempt. It begins with its first call, and ends when the program says so or when
// it is idle.
//
//	m := session.New(session.Config{Store: store, Flush: flush, IdleTimeout: time.Hour, …})
//	m.Start(ctx)
//	defer m.Close()
//	s, _, err := m.Named(ctx, "chat-17", user, "") // or ByKey, after Create
//	leave, ok := m.Enter(s)
//	// … the call runs …
//	leave(false)
//
// A [Manager] keeps the open sessions in memory and can find all of them again in the store:
// when it starts, it adopts those that an earlier process left open. Several managers on one
// store agree on the rollout of a session by idempotency keys.
//
// The package must not know how calls are sent or recorded.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// The keys of a session's metadata in the rollout, and of its end in the attempt.
const (
	MetadataSession = agl.MetadataSession // the session's name
	MetadataUser    = "agl.user"
	MetadataConsent = "consent"         // whether its data may be used for training, in the program's words
	MetadataEnd     = "agl.session_end" // EndCall, EndHeader or EndIdle
)

// The reasons why a session ends.
const (
	EndCall   = "call"   // End was called
	EndHeader = "header" // a header of a call said that it was the last
	EndIdle   = "idle"   // Config.IdleTimeout passed without a call
)

// KeyPrefix is the prefix of the keys of sessions.
const KeyPrefix = "sk-sess-"

// Store is what a manager needs of an agl.Store.
type Store interface {
	StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error)
	GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error)
	QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error)
	UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error)
	GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error)
}

// Config configures a [Manager].
type Config struct {
	Store Store
	// Flush stores the records of an attempt's calls.
	Flush func(ctx context.Context, rolloutID, attemptID string) error
	// Reward, if not nil, stores the rewards of a session before it ends, and is called again
	// after an error. Sessions then end in the background.
	Reward       func(ctx context.Context, rolloutID, attemptID string) error
	IdleTimeout  time.Duration   // ends a session without calls; must be positive
	Ready        <-chan struct{} // if not nil, is closed when sessions can make calls; until then none is idle
	RewardWindow time.Duration   // how long rewards may arrive after the end; 0 leaves it to the store
	StoreTimeout time.Duration   // limit of one request to the store
	Max          int             // limit of open sessions; 0 is 100,000
	// Assign returns the assignment of a session that begins now, and then earlier ones, the
	// newest first: a session that began at another proxy keeps the assignment that it got
	// there. key is the session's user, or its name if it has none. A nil Assign assigns
	// nothing.
	Assign func(key string) []Assignment
	Logger *slog.Logger
}

// Assignment says which resources and models serve a session from its beginning to its end.
type Assignment struct {
	ResourcesID string            // empty is the latest
	Models      map[string]string // the models that answer, by the model that the program asks for
	Metadata    map[string]any    // added to that of the session's rollout
}

// metadataModels is the key of Assignment.Models.
const metadataModels = "agl.session_models"

// Session is an open session.
type Session struct {
	RolloutID, AttemptID string
	ResourcesID          string // of the resources that serve it; empty when there are none
	// Models is Assignment.Models.
	Models map[string]string

	name    string
	place   string // in Manager.byName
	idle    time.Duration
	last    time.Time // when a call last began or ended
	running int
	calls   int
	end     string // EndCall, EndHeader or EndIdle once it is closed; empty while it is open
	ending  bool   // endAll is ending it
}

// Manager knows the open sessions. Its methods are safe for concurrent use.
type Manager struct {
	config Config
	wake   chan struct{}      // a session is to be ended
	stop   context.CancelFunc // nil before Start
	ends   sync.WaitGroup     // the background work
	slots  chan struct{}      // holds a token for each session that is being ended in the background

	unended, unfound Seldom

	mu        sync.Mutex
	byName    map[string]*Session // by place
	byRollout map[string]*Session
	starting  map[string]chan struct{} // places whose sessions' rollouts are being started
	// gone has the attempts of sessions that were forgotten within the last Config.StoreTimeout. The store may have read them before
	// they ended, and its answer come after that.
	gone map[string]time.Time
	// unconfirmed is when endedElsewhere asks the store again.
	unconfirmed time.Time
	adopted     bool
}

// maxEnding bounds how many sessions are ended at once.
const maxEnding = 16

// New returns a manager.
func New(config Config) *Manager {
	config.Max = cmp.Or(config.Max, 100_000)
	return &Manager{
		config: config, wake: make(chan struct{}, 1), slots: make(chan struct{}, maxEnding),
		byName: map[string]*Session{}, byRollout: map[string]*Session{}, starting: map[string]chan struct{}{}, gone: map[string]time.Time{},
	}
}

// Start starts the background work, which ends sessions, until Close.
func (m *Manager) Start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.ends.Go(func() { m.run(ctx) })
}

// Close ends the background work. Open sessions stay open, for the next manager.
func (m *Manager) Close() {
	if m.stop != nil {
		m.stop()
		m.ends.Wait()
	}
}

// NewSession describes a session that a program starts.
type NewSession struct {
	User        string
	ResourcesID string         // empty is the latest
	Input       jsontext.Value // of the rollout; nil is null
	Metadata    map[string]jsontext.Value
	IdleTimeout time.Duration // 0 is Config.IdleTimeout
	// Key is a key that the caller has chosen; empty creates one. An open session with that
	// key is ended.
	Key string
	// Secret is the secret part of a created key; empty is a random one. A repeat with the same Secret returns the same session. It must be
	// empty if Key is set.
	Secret string
}

// Create starts a session and returns its key.
func (m *Manager) Create(ctx context.Context, p NewSession) (s *Session, key string, err error) {
	if p.ResourcesID != "" {
		switch _, err := m.config.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: p.ResourcesID}); {
		case errors.Is(err, agl.ErrNotFound):
			return nil, "", agl.Errorf(agl.CodeInvalid, "resources: got %.100q, must be the id of resources in the store; without it the session has the latest", p.ResourcesID)
		case err != nil:
			return nil, "", err
		}
	}
	secret := cmp.Or(p.Key, p.Secret, strings.ToLower(rand.Text()+rand.Text()))
	name, idempotencyKey := keyName(secret), rand.Text()
	if p.Secret != "" {
		idempotencyKey = "session-" + name
	} else if old := m.keyed(name); old != nil {
		if err := m.End(ctx, old, EndCall); err != nil && !errors.Is(err, agl.ErrIllegalState) {
			return nil, "", err
		}
	}
	if s, _, err = m.beginAs(ctx, name, p, idempotencyKey); err != nil {
		return nil, "", err
	}
	if p.Key != "" {
		return s, p.Key, nil
	}
	return s, KeyPrefix + s.RolloutID + "." + secret, nil
}

const keyNamePrefix = "key:"

func keyName(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return keyNamePrefix + hex.EncodeToString(sum[:])
}

// placeOf returns what an open session is found by: a key alone, or a name and a user. Programs that count the chats of each
// user give two users the same name.
func placeOf(name, user string) string {
	if strings.HasPrefix(name, keyNamePrefix) {
		return name
	}
	return name + "\x00" + user
}

// keyed returns the open session with the name of a key.
func (m *Manager) keyed(name string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byName[placeOf(name, "")]
}

// assignments returns the result of Config.Assign, or an empty assignment if there is none.
func (m *Manager) assignments(key string) []Assignment {
	if m.config.Assign != nil {
		if list := m.config.Assign(key); len(list) > 0 {
			return list
		}
	}
	return []Assignment{{}}
}

// begin starts the rollout of a session. The error is ErrIllegalState if a session with the
// same idempotency key, that of the returned rollout, has ended.
func (m *Manager) begin(ctx context.Context, name string, p NewSession, assigned Assignment, key string) (s *Session, rolloutID string, err error) {
	m.mu.Lock()
	full := len(m.byRollout) >= m.config.Max
	m.mu.Unlock()
	if full {
		return nil, "", agl.Errorf(agl.CodeExhausted, "there are %d open sessions, the most that there may be", m.config.Max)
	}
	metadata := map[string]any{}
	for k, v := range p.Metadata {
		if k == metadataModels || k == metadataIdle || k == metadataHash || k == MetadataSession {
			return nil, "", agl.Errorf(agl.CodeInvalid, "metadata: got %q, which sessions have from the proxy", k)
		}
		metadata[k] = v
	}
	if p.ResourcesID == "" || assigned.ResourcesID == "" { // a session whose program chose its resources takes no part in an experiment
		maps.Copy(metadata, assigned.Metadata)
		p.ResourcesID = cmp.Or(p.ResourcesID, assigned.ResourcesID)
		if len(assigned.Models) > 0 {
			metadata[metadataModels] = assigned.Models
		}
	}
	label := labelOf(name)
	metadata[label.Name] = label.Value
	metadata[MetadataSession] = name
	if p.User != "" {
		metadata[MetadataUser] = p.User
	}
	if err := checkUser(metadata[MetadataUser]); err != nil {
		return nil, "", err
	}
	if m.config.RewardWindow > 0 {
		metadata[agl.MetadataRewardWindow] = m.config.RewardWindow.Seconds()
	}
	if p.IdleTimeout > 0 {
		metadata[metadataIdle] = p.IdleTimeout.Seconds()
	}
	doc, err := json.Marshal(metadata, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, "", agl.Errorf(agl.CodeInvalid, "metadata: %w", err)
	}
	e := agl.EnqueueRollout{Input: p.Input, Metadata: doc, ResourcesID: agl.Null[string]{V: p.ResourcesID, Valid: p.ResourcesID != ""}}
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	r, err := m.config.Store.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: e, IdempotencyKey: key})
	begun := r.RolloutID
	if err == nil { // a repeated StartRollout returns the rollout as it was when it started
		r, err = m.config.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: r.RolloutID})
	}
	switch {
	case errors.Is(err, agl.ErrNotFound):
		return nil, begun, errDeleted
	case err != nil:
		return nil, "", err
	}
	s, err = m.add(&r)
	return s, begun, err
}

var errDeleted = agl.Errorf(agl.CodeIllegalState, "the session was deleted")

// MaxUser is the longest user in bytes. The store must be able to find the sessions of a user who wants to be
// forgotten.
const MaxUser = 256

// checkUser checks a user, which may be text, JSON or nil.
func checkUser(user any) error {
	text, ok := user.(string)
	if raw, given := user.(jsontext.Value); given {
		ok = json.Unmarshal(raw, &text) == nil
	}
	switch {
	case user != nil && !ok:
		return agl.Errorf(agl.CodeInvalid, "metadata: %s: got %.100s, must be text", MetadataUser, user)
	case len(text) > MaxUser:
		return agl.Errorf(agl.CodeInvalid, "user: has %d bytes, must have at most %d, by which its sessions are found and deleted", len(text), MaxUser)
	}
	return nil
}

// metadataIdle is the key of a session's own idle timeout, in seconds.
const metadataIdle = "agl.session_idle"

// add returns the session of a rollout, and adds it if it is new. The error is ErrIllegalState
// if the rollout has finished, and ErrNotFound if it is not a session.
func (m *Manager) add(r *agl.AttemptedRollout) (*Session, error) {
	name, ok := agl.Attributes(r.Metadata).GetString(MetadataSession)
	if !ok || r.Attempt == nil {
		return nil, agl.Errorf(agl.CodeNotFound, "rollout %q is not a session", r.RolloutID)
	}
	if r.Status.Finished() || !r.Attempt.Status.Live() {
		return nil, errEnded(r.RolloutID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.byRollout[r.RolloutID]; s != nil {
		if s.end != "" {
			return nil, errEnded(r.RolloutID)
		}
		return s, nil
	}
	if _, gone := m.gone[r.Attempt.AttemptID]; gone {
		return nil, errEnded(r.RolloutID)
	}
	user, _ := agl.Attributes(r.Metadata).GetString(MetadataUser)
	s := &Session{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, ResourcesID: r.ResourcesID.V, name: name, place: placeOf(name, user),
		idle: m.config.IdleTimeout, last: time.Now(),
	}
	if seconds, ok := agl.Attributes(r.Metadata).GetFloat(metadataIdle); ok && seconds > 0 {
		s.idle = time.Duration(min(seconds, 1e9) * float64(time.Second))
	}
	if models, ok := agl.Attributes(r.Metadata).Get(metadataModels); ok {
		if err := json.Unmarshal(models, &s.Models); err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "rollout %q: %s: %w", r.RolloutID, metadataModels, err)
		}
	}
	m.byRollout[s.RolloutID] = s
	m.byName[s.place] = s
	return s, nil
}

func errEnded(rolloutID string) error {
	return agl.Errorf(agl.CodeIllegalState, "the session of rollout %q has ended", rolloutID)
}

// IsKey reports whether a text begins with KeyPrefix.
func IsKey(text string) bool { return strings.HasPrefix(text, KeyPrefix) }

// ByKey returns the session of a key. found is false, without an error, if the key neither
// begins with KeyPrefix nor was chosen for an open session. The error is ErrUnauthorized if
// there is no session for a key with the prefix, and ErrIllegalState if the session has ended.
func (m *Manager) ByKey(ctx context.Context, key string) (s *Session, found bool, err error) {
	if key == "" {
		return nil, false, nil
	}
	if s := m.keyed(keyName(key)); s != nil && !m.endedElsewhere(ctx, s) { // a key that its owner has chosen
		return s, true, nil
	}
	rest, ours := strings.CutPrefix(key, KeyPrefix)
	if !ours {
		return nil, false, nil
	}
	rolloutID, secret := "", ""
	if dot := strings.LastIndexByte(rest, '.'); dot >= 0 {
		rolloutID, secret = rest[:dot], rest[dot+1:]
	}
	if rolloutID == "" || secret == "" {
		return nil, true, errUnknown()
	}
	s, name, err := m.ByID(ctx, rolloutID)
	if name == "" || subtle.ConstantTimeCompare([]byte(name), []byte(keyName(secret))) != 1 {
		if err == nil || errors.Is(err, agl.ErrNotFound) || errors.Is(err, agl.ErrIllegalState) {
			err = errUnknown()
		}
		return nil, true, err
	}
	return s, true, err
}

func errUnknown() error { return agl.Errorf(agl.CodeUnauthorized, "the session key is unknown") }

// ByID returns the session of a rollout and its name. If the session has ended, it returns
// both together with ErrIllegalState.
func (m *Manager) ByID(ctx context.Context, rolloutID string) (s *Session, name string, err error) {
	m.mu.Lock()
	s = m.byRollout[rolloutID]
	m.mu.Unlock()
	if s != nil && !m.endedElsewhere(ctx, s) {
		return s, s.name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.StoreTimeout)
	defer cancel()
	r, err := m.config.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: rolloutID})
	if err != nil {
		return nil, "", err
	}
	name, _ = agl.Attributes(r.Metadata).GetString(MetadataSession)
	if s, err = m.add(&r); errors.Is(err, agl.ErrIllegalState) && r.Attempt != nil {
		s = &Session{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, name: name, end: EndCall}
	}
	return s, name, err
}

// Enter begins a call of a session. The caller calls leave when the call ends, and says
// whether it was the session's last one. ok is false if the session has ended meanwhile.
func (m *Manager) Enter(s *Session) (leave func(last bool), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.end != "" {
		return nil, false
	}
	s.running++
	s.calls++
	s.last = time.Now()
	return func(last bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.running--
		s.last = time.Now()
		if last {
			m.close(s, EndHeader)
		}
		if s.end != "" {
			background.Wake(m.wake)
		}
	}, true
}

// close lets no further call into a session, so that it is going to end and its name may begin
// another one. The caller holds the lock.
func (m *Manager) close(s *Session, why string) {
	s.end = cmp.Or(s.end, why)
	if m.byName[s.place] == s {
		delete(m.byName, s.place)
	}
}

// forget removes a session that has ended. The caller holds the lock.
func (m *Manager) forget(s *Session) {
	delete(m.byRollout, s.RolloutID)
	m.gone[s.AttemptID] = time.Now()
}

// Calls returns how many calls a session has begun.
func (m *Manager) Calls(s *Session) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.calls
}
