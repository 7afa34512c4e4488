package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// Model is a backend: an endpoint that serves a model.
type Model struct {
	Model    string `json:"model"`
	Endpoint string `json:"endpoint"` // with the base path, usually ending in /v1
	Version  int64  `json:"version"`
	// Registration is the number of the request that registered this model. The trainer registers its models anew
	// after each step and leaves Version at 0.
	Registration int64 `json:"registration,omitzero"`
}

// settingsDoc is what the gateway stores besides its rollouts.
type settingsDoc struct {
	Models        []Model `json:"models,omitzero"`
	Registrations int64   `json:"registrations,omitzero"`

	Paused     bool             `json:"paused,omitzero"`
	RetryAfter int64            `json:"retry_after_seconds"`
	Reason     agl.Null[string] `json:"reason,omitzero"`
}

const (
	// settingsKind and settingsID name the document with the settings.
	settingsKind = "gateway"
	settingsID   = "settings"
	// settingsAge bounds the age of the settings that a call uses: another server may have changed them.
	settingsAge = 100 * time.Millisecond
)

// settings holds the registered models and the pause, which all servers of a store share.
type settings struct {
	store agl.DocumentStore

	mu     sync.Mutex
	doc    settingsDoc
	readAt time.Time
}

// get returns the settings, less than age old. The caller must not change them.
func (s *settings) get(ctx context.Context, age time.Duration) (settingsDoc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.readAt) >= age {
		if _, err := s.read(ctx); err != nil {
			return settingsDoc{}, err
		}
	}
	return s.doc, nil
}

// read reads the settings from the store. It returns the version of their document; 0 is none.
func (s *settings) read(ctx context.Context) (version int64, err error) {
	now := time.Now()
	doc, version, err := agl.ReadDocument[settingsDoc](ctx, s.store, settingsKind, settingsID)
	if agl.ErrorCode(err) == agl.CodeNotFound {
		doc, err = settingsDoc{RetryAfter: defaultRetryAfter}, nil
	}
	if err == nil {
		s.doc, s.readAt = doc, now
	}
	return version, err
}

// update changes the settings by compare-and-set. edit must not change the slices in doc.
func (s *settings) update(ctx context.Context, edit func(doc settingsDoc) settingsDoc) (settingsDoc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		version, err := s.read(ctx)
		if err != nil {
			return s.doc, err
		}
		next := edit(s.doc)
		err = agl.WriteDocument(ctx, s.store, agl.DocumentWrite{Kind: settingsKind, ID: settingsID, IfVersion: agl.Some(version)}, &next)
		if err == nil {
			s.doc, s.readAt = next, time.Now()
		}
		if agl.ErrorCode(err) != agl.CodeConflict {
			return s.doc, err
		}
	}
}

// backend returns the endpoint for a rollout's calls. As long as the endpoints stay the same, so does the rollout's
// endpoint, which has the prefixes of earlier calls in its cache.
func (d *settingsDoc) backend(model, rolloutID string) (Model, bool) {
	var pool []Model
	for _, m := range d.Models {
		if m.Model == model {
			pool = append(pool, m)
		}
	}
	if len(pool) == 0 {
		return Model{}, false
	}
	slices.SortFunc(pool, func(a, b Model) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	sum := sha256.Sum256([]byte(rolloutID))
	return pool[binary.BigEndian.Uint64(sum[:8])%uint64(len(pool))], true
}

const defaultRetryAfter = 5 // seconds
