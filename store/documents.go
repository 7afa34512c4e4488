package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

var _ agl.DocumentStore = (*Store)(nil)

// documentEntry is a document before the batch and now.
type documentEntry struct {
	key      driver.DocumentKey
	was, cur *agl.Document // nil if it does not exist
	changed  bool
	event    bool // a write asks for an event
}

func (w *unitOfWork) document(key driver.DocumentKey) *documentEntry {
	e := w.documents[key]
	if e == nil {
		e = &documentEntry{key: key}
		w.documents[key] = e
	}
	return e
}

// setDocument stores a document, or deletes it if d is nil.
func (w *unitOfWork) setDocument(e *documentEntry, d *agl.Document, quiet bool) {
	e.cur = d
	e.event = e.event || !quiet
	if !e.changed {
		e.changed = true
		w.changedDocuments = append(w.changedDocuments, e)
	}
}

// eventWritten is the status in the event of a document that was written.
const eventWritten = "written"

// collect adds the change of the document, and its event.
func (e *documentEntry) collect(c *driver.Changes) {
	status := eventWritten
	switch {
	case e.cur != nil:
		c.Documents = append(c.Documents, e.cur)
	case e.was != nil:
		c.DeletedDocuments = append(c.DeletedDocuments, e.key)
		status = eventDeleted
	default: // created and deleted in one batch
		return
	}
	if e.event {
		c.Events = append(c.Events, agl.Event{Kind: agl.EventDocument, Document: e.key.Kind + "/" + e.key.ID, Status: status})
	}
}

// writeDocuments makes all writes, or none. It keeps their bodies, which the caller must not change afterwards.
func (s *Store) writeDocuments(ctx context.Context, writes []agl.DocumentWrite) ([]agl.Document, error) {
	return submitWrite(ctx, s.committer, func(want *driver.LoadParams) {
		for i := range writes {
			want.Documents = append(want.Documents, driver.DocumentKey{Kind: writes[i].Kind, ID: writes[i].ID})
		}
	}, func(w *unitOfWork) ([]agl.Document, error) { return w.writeDocuments(writes) })
}

func (w *unitOfWork) writeDocuments(writes []agl.DocumentWrite) ([]agl.Document, error) {
	entries := make([]*documentEntry, len(writes))
	for i := range writes {
		p := &writes[i]
		entries[i] = w.document(driver.DocumentKey{Kind: p.Kind, ID: p.ID})
		if err := checkVersion(p, entries[i].cur); err != nil {
			return nil, err
		}
	}
	out := make([]agl.Document, len(writes))
	for i := range writes {
		p, e := &writes[i], entries[i]
		if p.Delete {
			out[i] = *e.cur
			w.setDocument(e, nil, p.Quiet)
			continue
		}
		d := &agl.Document{
			Kind: p.Kind, ID: p.ID, Parent: p.Parent, Sequence: p.Sequence, Version: 1, UpdateTime: w.now, Body: p.Body,
		}
		if e.cur != nil {
			d.Version = e.cur.Version + 1
		}
		out[i] = *d
		w.setDocument(e, d, p.Quiet)
	}
	return out, nil
}

// checkVersion checks the condition of a write against the document, nil if it does not
// exist.
func checkVersion(p *agl.DocumentWrite, cur *agl.Document) error {
	version := int64(0)
	if cur != nil {
		version = cur.Version
	}
	switch {
	case p.IfVersion.Valid && p.IfVersion.V != version && version == 0:
		return agl.Errorf(agl.CodeConflict, "%s %s does not exist, if_version is %d", p.Kind, p.ID, p.IfVersion.V)
	case p.IfVersion.Valid && p.IfVersion.V != version:
		return agl.Errorf(agl.CodeConflict, "%s %s has version %d, if_version is %d", p.Kind, p.ID, version, p.IfVersion.V)
	case p.Delete && cur == nil:
		return errDocument(p.Kind, p.ID)
	}
	return nil
}

func errDocument(kind, id string) error {
	return agl.Errorf(agl.CodeNotFound, "%s %s not found", kind, id)
}

// WriteDocuments implements agl.DocumentStore.
func (s *Store) WriteDocuments(ctx context.Context, p agl.WriteDocumentsParams) ([]agl.Document, error) {
	return do(ctx, s, "WriteDocuments", nil, func() ([]agl.Document, error) {
		if n := len(p.Writes); n > agl.MaxDocumentWrites {
			return nil, agl.Errorf(agl.CodeInvalid, "writes: got %d, must be at most %d", n, agl.MaxDocumentWrites)
		}
		writes := slices.Clone(p.Writes)
		named := make(map[driver.DocumentKey]struct{}, len(p.Writes))
		for i := range p.Writes {
			given := &p.Writes[i]
			if err := checkWrite(given); err != nil {
				return nil, agl.Errorf(agl.ErrorCode(err), "writes[%d]: %w", i, err)
			}
			named[driver.DocumentKey{Kind: given.Kind, ID: given.ID}] = struct{}{}
			if len(named) != i+1 {
				return nil, agl.Errorf(agl.CodeInvalid, "writes[%d]: %s %s is written twice", i, given.Kind, given.ID)
			}
			writes[i].Body = given.Body.Clone()
		}
		if len(p.Writes) == 0 {
			return []agl.Document{}, nil
		}
		return s.writeDocuments(ctx, writes)
	})
}

// checkWrite checks the fields of a write.
func checkWrite(p *agl.DocumentWrite) error {
	if err := cmp.Or(checkDocumentKey(p.Kind, p.ID), checkIDs(givenText{"parent", p.Parent})); err != nil {
		return err
	}
	switch {
	case p.IfVersion.Valid && p.IfVersion.V < 0:
		return agl.Errorf(agl.CodeInvalid, "if_version: got %d, must be a version, or 0 for a document that must not exist", p.IfVersion.V)
	case p.Delete:
		return nil
	case p.Body == nil:
		return agl.Errorf(agl.CodeInvalid, "body: none given, must be a JSON document")
	case len(p.Body) > agl.MaxDocumentBytes:
		return agl.Errorf(agl.CodeInvalid, "body: got %d bytes, must be at most %d", len(p.Body), agl.MaxDocumentBytes)
	}
	return checkDocument("body", p.Body)
}

// maxKindBytes bounds the kind of a document.
const maxKindBytes = 64

func checkKind(kind string) error {
	if kind == "" || len(kind) > maxKindBytes || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return agl.Errorf(agl.CodeInvalid, "kind: got %.100q, must be 1 to %d of a-z, 0-9, - and _", kind, maxKindBytes)
	}
	return nil
}

func checkDocumentKey(kind, id string) error {
	if err := checkKind(kind); err != nil {
		return err
	}
	if id == "" {
		return agl.Errorf(agl.CodeInvalid, "id: empty, must be an id")
	}
	return checkIDs(givenText{"id", id})
}

// GetDocument implements agl.DocumentStore.
func (s *Store) GetDocument(ctx context.Context, kind, id string) (agl.Document, error) {
	return do(ctx, s, "GetDocument", checkDocumentKey(kind, id), func() (agl.Document, error) {
		return s.driver.Document(ctx, driver.DocumentKey{Kind: kind, ID: id})
	})
}

// QueryDocuments implements agl.DocumentStore.
func (s *Store) QueryDocuments(ctx context.Context, p agl.QueryDocumentsParams) (agl.Page[agl.Document], error) {
	paging := agl.Paging{Limit: p.Limit, Offset: p.Offset}
	return do(ctx, s, "QueryDocuments", cmp.Or(checkQuery(&paging, "", nil), checkKind(p.Kind)), func() (agl.Page[agl.Document], error) {
		p.Limit = paging.Limit
		return s.driver.QueryDocuments(ctx, p)
	})
}
