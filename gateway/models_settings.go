package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
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
	// settingsAge is the greatest age of the settings that a call uses: another server may have changed them.
	settingsAge = 100 * time.Millisecond
)

// settings holds the registered models and the pause, which all servers of a store share.
type settings struct {
	store agl.DocumentStore

	mu      sync.Mutex
	doc     settingsDoc
	version int64 // of the document from which doc was read; 0 is none
	readAt  time.Time
}

// read reads the settings from the store.
func (s *settings) read(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readLocked(ctx)
}

func (s *settings) readLocked(ctx context.Context) error {
	now := time.Now()
	stored, err := s.store.GetDocument(ctx, settingsKind, settingsID)
	switch {
	case agl.ErrorCode(err) == agl.CodeNotFound:
		s.doc, s.version, s.readAt = settingsDoc{RetryAfter: defaultRetryAfter}, 0, now
		return nil
	case err != nil:
		return err
	}
	doc := settingsDoc{RetryAfter: defaultRetryAfter}
	if err := rawjson.Unmarshal(stored.Body, &doc); err != nil {
		return agl.Errorf(agl.CodeInternal, "the settings of the gateway do not decode: %w", err)
	}
	s.doc, s.version, s.readAt = doc, stored.Version, now
	return nil
}

// get returns the settings, at most settingsAge old. The caller must not change them.
func (s *settings) get(ctx context.Context) (settingsDoc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.readAt) > settingsAge {
		if err := s.readLocked(ctx); err != nil {
			return settingsDoc{}, err
		}
	}
	return s.doc, nil
}

// update changes the settings by compare-and-set. edit must not change the slices in doc.
func (s *settings) update(ctx context.Context, edit func(doc settingsDoc) settingsDoc) (settingsDoc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.readLocked(ctx); err != nil {
			return s.doc, err
		}
		next := edit(s.doc)
		raw, err := json.Marshal(next)
		if err != nil {
			return s.doc, err
		}
		stored, err := s.store.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{
			Kind: settingsKind, ID: settingsID, Body: raw, IfVersion: agl.Some(s.version),
		}}})
		switch {
		case err == nil:
			s.doc, s.version, s.readAt = next, stored[0].Version, time.Now()
			return s.doc, nil
		case agl.ErrorCode(err) != agl.CodeConflict:
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
