package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// auditKind is the kind of the documents of acts.
const auditKind = "audit"

const (
	// MaxActs is how many acts are kept at least; older ones are deleted.
	MaxActs = 100_000
	// pruneActs is how many acts come between two deletions, and go in one.
	pruneActs = 500
)

// Act is something that a caller has done with the scope train or admin.
type Act struct {
	Time   agl.Timestamp `json:"time"`
	By     string        `json:"by"`           // the key and its name, or root
	KeyID  string        `json:"key_id"`       // "" for the root key
	From   string        `json:"from"`         // the address
	Via    string        `json:"via,omitzero"` // the address of the other server that it was done at, such as a proxy
	Method string        `json:"method"`
	Path   string        `json:"path"` // without the query
	Status int           `json:"status"`
}

// RecordTimeout is how long a server tries to record an act.
const RecordTimeout = 10 * time.Second

// maxActText bounds each text of an act, in bytes; the rest is left out.
const maxActText = 2048

// text makes the texts of the act ones that can be kept, whatever a caller has sent.
func (a *Act) text() {
	for _, s := range [...]*string{&a.By, &a.From, &a.Via, &a.Method, &a.Path} {
		if len(*s) > maxActText {
			*s = (*s)[:maxActText] + "…"
		}
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
}

// Audit keeps the acts of callers in a store. It is safe for concurrent use.
type Audit struct {
	documents agl.DocumentStore
	recorded  atomic.Int64
}

// NewAudit returns the acts that a store keeps as documents.
func NewAudit(documents agl.DocumentStore) *Audit { return &Audit{documents: documents} }

// Record keeps an act, and now and then deletes the oldest ones.
func (a *Audit) Record(ctx context.Context, act *Act) error {
	kept := *act
	kept.text()
	body, err := json.Marshal(&kept)
	if err != nil {
		return err
	}
	// Ids grow with the time, so that a database writes them side by side.
	now := time.Now().UnixMicro()
	id := fmt.Sprintf("%016x-%s", now, rand.Text())
	_, err = a.documents.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{
		{Kind: auditKind, ID: id, Sequence: now, Body: body, Quiet: true},
	}})
	if err != nil || a.recorded.Add(1)%pruneActs != 0 {
		return err
	}
	return a.prune(ctx, MaxActs)
}

// prune deletes the oldest acts beyond the newest keep.
func (a *Audit) prune(ctx context.Context, keep int) error {
	old, err := a.query(ctx, 2*pruneActs, keep)
	if err != nil || len(old.Items) == 0 {
		return err
	}
	writes := make([]agl.DocumentWrite, len(old.Items))
	for i := range old.Items {
		writes[i] = agl.DocumentWrite{Kind: auditKind, ID: old.Items[i].ID, Delete: true, Quiet: true}
	}
	_, err = a.documents.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: writes})
	if agl.ErrorCode(err) == agl.CodeNotFound { // another server has deleted them
		return nil
	}
	return err
}

func (a *Audit) query(ctx context.Context, limit, offset int) (agl.Page[agl.Document], error) {
	return a.documents.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: auditKind, Parent: agl.Some(""), Limit: limit, Offset: offset, Descending: true})
}

// List returns acts, the newest first, and how many there are. A limit of 0 is all.
func (a *Audit) List(ctx context.Context, limit, offset int) (acts []Act, total int, err error) {
	page, err := a.query(ctx, limit, offset)
	if err != nil {
		return nil, 0, err
	}
	acts = make([]Act, len(page.Items))
	for i := range page.Items {
		if err := json.Unmarshal(page.Items[i].Body, &acts[i]); err != nil {
			return nil, 0, agl.Errorf(agl.CodeInternal, "the document of act %s cannot be read: %w", page.Items[i].ID, err)
		}
	}
	return acts, page.Total, nil
}
