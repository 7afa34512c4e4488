package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/tinker"
)

// Server serves an engine. It is safe for concurrent use.
type Server struct {
	cfg Config
	mux *http.ServeMux
	// scopes are those that the routes declare, by method and path.
	scopes   map[string]access.Scope
	requests *access.Open // of each caller
	calls    sync.WaitGroup
	stop     chan struct{} // closed by Close
	// inflating has a place for each body that may be decompressed at the same time.
	inflating chan struct{}
	boot      string // begins the ids of futures, so that those of an earlier server are unknown

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session
	models   map[string]*model
	live     int // models that are being created or in training
	samplers map[string]*sampler
	open     []*sampler          // with open weights, the least recently used first
	changing map[tinker.Path]int // saved weights that are being replaced or deleted
	futures  map[string]*future
	made     uint64    // futures so far
	results  []*future // that have ended, the oldest first
	// resultBytes is the size of all results.
	resultBytes int64
}

// session owns models and sampling sessions.
type session struct {
	making   sync.Mutex        // held while a model or a sampling session is made, so that repeats find it
	models   map[int64]*future // creations by sequence id, guarded by making, as samplers
	samplers map[int64]string

	active  time.Time // last activity
	running int       // calls of its models and sampling sessions, and creations of these
	owned   []*model  // not unloaded
}

// disown takes a model away. The server's lock is held.
func (o *session) disown(m *model) {
	o.owned = slices.DeleteFunc(o.owned, func(other *model) bool { return other == m })
}

// model is a model in training.
type model struct {
	id      string
	host    string // the model part of its weights' paths
	session string
	client  tinker.TrainingClient
	calls   calls
	last    *future // the call that was submitted last
	unload  *future // nil until it is submitted
}

// sampler is a sampling session.
type sampler struct {
	session string
	// source opens its weights again; zero for weights without a name, and for deleted ones.
	source tinker.NewSamplingClientParams
	base   string                // the base model
	client tinker.SamplingClient // nil if the weights are closed
	calls  calls
}

// calls are the calls of a model or a sampling session, by sequence id.
type calls struct {
	next int64
	seen map[int64]*future
}

func newCalls() calls { return calls{next: 1, seen: map[int64]*future{}} }

// future is a submitted call. Its result is written before done is closed.
type future struct {
	id    string
	model string // of calls that create or unload a model

	// The place of the call in a sequence, and the digest of its body; in is nil outside of sequences.
	in   *calls
	seq  int64
	body [sha256.Size]byte

	cancel context.CancelFunc // nil for a call that never ran in the background
	done   chan struct{}
	result result
}

// find finds an entry by its id. The lock is held.
func find[T any](in map[string]*T, what, id string) (*T, error) {
	if v, ok := in[id]; ok {
		return v, nil
	}
	return nil, agl.Errorf(agl.CodeNotFound, "%s: %q is unknown: it has ended, or it belongs to an earlier run of the server; create another", what, id)
}

func newID(kind string) string { return kind + "_" + rand.Text() }
