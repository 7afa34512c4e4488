package agl

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Document is a small JSON document that a store keeps beside rollouts and spans: a
// run, a release, an API key, a cursor. Kind and ID name it.
type Document struct {
	Kind string // what it is, such as "run": lower-case letters, digits, "-" and "_"
	ID   string
	// Parent names the series that the document belongs to, such as the run of a metric;
	// "" is none. A series is ordered by Sequence, then by ID.
	Parent     string
	Sequence   int64
	Version    int64 // 1 when it is created, and one more with each write
	UpdateTime Timestamp
	Body       jsontext.Value // any JSON document, kept byte for byte
}

func (d *Document) members(w *wireForm) *wireForm {
	w.string("kind", &d.Kind)
	w.string("id", &d.ID)
	w.string("parent", &d.Parent)
	integer(w, "sequence", &d.Sequence)
	integer(w, "version", &d.Version)
	w.time("update_time", &d.UpdateTime)
	field(w, "body", &d.Body, rawjson.AppendRaw, rawjson.Reader.Raw)
	return w
}

// Decode reads the body into what a pointer points to. A body that does not fit is CodeInternal: whoever knows the kind
// wrote it.
func (d *Document) Decode(into any) error {
	if err := json.Unmarshal(d.Body, into); err != nil {
		return Errorf(CodeInternal, "the document %s of kind %s cannot be read: %w", d.ID, d.Kind, err)
	}
	return nil
}

// DecodeDocuments reads the bodies of documents of one kind.
func DecodeDocuments[T any](documents []Document) ([]T, error) {
	values := make([]T, len(documents))
	for i := range documents {
		if err := documents[i].Decode(&values[i]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// ReadDocument reads the body of a document, and returns its version; ErrNotFound.
func ReadDocument[T any](ctx context.Context, documents DocumentStore, kind, id string) (body T, version int64, err error) {
	document, err := documents.GetDocument(ctx, kind, id)
	if err == nil {
		err = document.Decode(&body)
	}
	return body, document.Version, err
}

// ListDocuments reads the bodies of all documents of one kind, in the order of QueryDocuments.
func ListDocuments[T any](ctx context.Context, documents DocumentStore, kind string) ([]T, error) {
	page, err := documents.QueryDocuments(ctx, QueryDocumentsParams{Kind: kind})
	if err != nil {
		return nil, err
	}
	return DecodeDocuments[T](page.Items)
}

// DocumentStore keeps documents. Package store's engine implements it over every database. It is not part of Store,
// which is limited to what a client of the HTTP API can do.
type DocumentStore interface {
	// GetDocument returns a document; ErrNotFound.
	GetDocument(ctx context.Context, kind, id string) (Document, error)
	// QueryDocuments finds the documents of one kind: those of a series in its order,
	// otherwise by their ids.
	QueryDocuments(ctx context.Context, p QueryDocumentsParams) (Page[Document], error)
	// WriteDocuments creates, replaces and deletes documents in one commit, and returns them in the order of the
	// writes: new states of those written, last states of those deleted. If one write fails, nothing is written:
	// ErrConflict says that a document does not have the version of its condition, ErrNotFound that a document to be
	// deleted does not exist.
	WriteDocuments(ctx context.Context, p WriteDocumentsParams) ([]Document, error)
}

// QueryDocumentsParams are the arguments of DocumentStore.QueryDocuments.
type QueryDocumentsParams struct {
	Kind string
	// Parent selects a series; null is every document of the kind.
	Parent Null[string]
	// From and To bound the sequence, both inclusive.
	From, To Null[int64]

	Limit, Offset int // a Limit of 0 or -1 is all
	Descending    bool
}

// WriteDocumentsParams are the arguments of DocumentStore.WriteDocuments.
type WriteDocumentsParams struct {
	Writes []DocumentWrite // at most MaxDocumentWrites, no two of the same document
}

// Bounds of one call of DocumentStore.WriteDocuments.
const (
	MaxDocumentWrites = 1000
	MaxDocumentBytes  = 1 << 20 // of one body
)

// DocumentWrite is a new state of one document.
type DocumentWrite struct {
	Kind, ID string
	Parent   string
	Sequence int64
	Body     jsontext.Value
	// IfVersion is the version that the document must have now, 0 for one that must not exist; null is any. A
	// document that is deleted and created again starts at version 1.
	IfVersion Null[int64]
	Delete    bool
	// Quiet writes no event: for counters and cursors, which change often.
	Quiet bool
}

// WriteDocument writes one document, whose body is the JSON of a value.
func WriteDocument(ctx context.Context, documents DocumentStore, w DocumentWrite, body any) (err error) {
	if w.Body, err = json.Marshal(body); err != nil {
		return err
	}
	_, err = documents.WriteDocuments(ctx, WriteDocumentsParams{Writes: []DocumentWrite{w}})
	return err
}
