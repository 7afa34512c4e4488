package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
)

// auditKind is the kind of the documents that hold acts.
const auditKind = "audit"

const (
	// MaxActs is the least number of acts that are kept; older ones are deleted.
	MaxActs = 100_000
	// pruneActs is the number of acts that are recorded between two deletions.
	pruneActs = 500
)

// Act is a call that succeeded with the scope train or admin.
type Act struct {
	Time   agl.Timestamp `json:"time"`
	By     string        `json:"by"`           // the key and its name, or root
	KeyID  string        `json:"key_id"`       // "" for the root key
	From   string        `json:"from"`         // the address
	Via    string        `json:"via,omitzero"` // the address of the other server that was called, such as a proxy
	Method string        `json:"method"`
	Path   string        `json:"path"` // without the query
	Status int           `json:"status"`
}

// recordTimeout bounds the time that a server takes to record an act.
const recordTimeout = 10 * time.Second

// maxActText bounds each text of an act, in bytes; the rest is cut off.
const maxActText = 2048

// sanitize makes the texts of the act short and valid UTF-8, whatever the caller sent.
func (a *Act) sanitize() {
	for _, s := range [...]*string{&a.By, &a.From, &a.Via, &a.Method, &a.Path} {
		if len(*s) > maxActText {
			*s = (*s)[:maxActText] + "…"
		}
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
}

// From returns the client's address and port, for acts and logs. A port 0 is left out: it stands for one that the client's proxy did not send.
func From(r *http.Request) string { return strings.TrimSuffix(r.RemoteAddr, ":0") }

// Audit records acts in a store. It is safe for concurrent use.
type Audit struct {
	documents agl.DocumentStore
	recorded  atomic.Int64

	mu   sync.Mutex
	last int64 // the greatest sequence known; 0 if it must be looked up
}

// NewAudit returns the audit log that a store keeps as documents.
func NewAudit(documents agl.DocumentStore) *Audit { return &Audit{documents: documents} }

// Record stores an act. Once in a while it also deletes the oldest acts.
func (a *Audit) Record(ctx context.Context, act *Act) error {
	kept := *act
	kept.sanitize()
	sequence, err := a.next(ctx)
	if err != nil {
		return err
	}
	// Ids grow with time, so that a database writes consecutive acts side by side.
	id := fmt.Sprintf("%016x-%s", sequence, rand.Text())
	err = agl.WriteDocument(ctx, a.documents, agl.DocumentWrite{Kind: auditKind, ID: id, Sequence: sequence, Quiet: true}, &kept)
	if err != nil || a.recorded.Add(1)%pruneActs != 0 {
		return err
	}
	a.mu.Lock()
	a.last = 0 // other servers of the database may be ahead
	a.mu.Unlock()
	return a.prune(ctx, MaxActs)
}

// RecordCall stores what a caller has done at this server, even if the caller has gone. If that fails, it is logged.
func (a *Audit) RecordCall(log *slog.Logger, r *http.Request, caller *Caller, status int) {
	act := Act{
		Time: agl.TimestampOf(time.Now()), By: caller.By(), KeyID: caller.KeyID, From: From(r), Method: r.Method, Path: r.URL.Path, Status: status,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	if err := a.Record(ctx, &act); err != nil {
		log.Error("an act was not recorded", "by", act.By, "from", act.From, "method", act.Method, "path", act.Path, "error", err)
	}
}

// next returns the place of an act: its time in microseconds, or after the newest act if the clock was set back since
// then, so that the acts that were recorded first are deleted first.
func (a *Audit) next(ctx context.Context) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == 0 {
		newest, err := a.query(ctx, 1, 0)
		if err != nil {
			return 0, err
		}
		if len(newest.Items) > 0 {
			a.last = newest.Items[0].Sequence
		}
	}
	a.last = max(time.Now().UnixMicro(), a.last+1)
	return a.last, nil
}

// prune deletes the acts beyond the newest keep, at most 2*pruneActs of them.
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

// List returns a page of acts, the newest first, and the number of all acts. A limit of 0 is all.
func (a *Audit) List(ctx context.Context, limit, offset int) (acts []Act, total int, err error) {
	page, err := a.query(ctx, limit, offset)
	if err != nil {
		return nil, 0, err
	}
	acts, err = agl.DecodeDocuments[Act](page.Items)
	return acts, page.Total, err
}
