package chaos

import (
	"context"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/chaos/history"
	"github.com/agl-go/agl/test/process"
)

// longest bounds every wait. It is reached only by a failure.
const longest = 3 * time.Minute

const (
	runners    = 32
	algorithms = 2
	// ahead is how many rollouts each algorithm keeps under way.
	ahead = 64
	// unresponsive is the silence after which a runner is given up.
	unresponsive = 2 * time.Second
)

// load has the clients that run against the servers, and their recorder.
type load struct {
	t        *testing.T
	seed     uint64
	recorder *history.Recorder
	// patient repeats a failed request until it has an answer; hasty never does.
	patient, hasty *client.Client
	enqueueing     context.Context // while algorithms make work
	working        context.Context // while there may be work
	resources      []string
	observed       atomic.Int64
}

// balancer sends every request to one of the servers, at random.
type balancer struct {
	addresses []string
	transport *http.Transport
}

func (b balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = b.addresses[rand.IntN(len(b.addresses))]
	return b.transport.RoundTrip(req)
}

func (b balancer) CloseIdleConnections() { b.transport.CloseIdleConnections() }

func newLoad(t *testing.T, seed uint64, recorder *history.Recorder, servers []*process.Server) *load {
	t.Helper()
	l := &load{t: t, seed: seed, recorder: recorder}
	b := balancer{transport: &http.Transport{MaxIdleConnsPerHost: 2 * runners}}
	for _, s := range servers {
		b.addresses = append(b.addresses, s.Address())
	}
	connect := func(c client.Config) *client.Client {
		c.URL, c.Transport = servers[0].URL(), b
		c.MaxBackoff, c.EventIdleTimeout = 200*time.Millisecond, 20*time.Second
		client, err := client.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
		return client
	}
	l.patient = connect(client.Config{RequestTimeout: 10 * time.Second, RetryTimeout: longest})
	l.hasty = connect(client.Config{RequestTimeout: 3 * time.Second, RetryTimeout: -1})
	return l
}

// during runs the load while chaos kills servers, waits until all rollouts are finished, and
// records the final state.
func (l *load) during(chaos func()) {
	l.t.Helper()
	ctx := l.t.Context()
	var stopEnqueueing, stopWorking context.CancelFunc
	l.enqueueing, stopEnqueueing = context.WithCancel(ctx)
	defer stopEnqueueing()
	l.working, stopWorking = context.WithCancel(ctx)
	defer stopWorking()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		l.watch(watching)
	}()
	l.awaitEvents(ctx)
	var workers, makers sync.WaitGroup
	for i := range runners {
		r := newRunner(l, i)
		workers.Go(func() { r.run(ctx) })
	}
	for i := range algorithms {
		a := newAlgorithm(l, i)
		l.resources = append(l.resources, a.resources)
		makers.Go(func() { a.run(ctx) })
	}
	chaos()
	stopEnqueueing()
	makers.Wait()
	l.settle(ctx)
	stopWorking()
	workers.Wait()
	l.settle(ctx) // late writers may have revived something
	l.recordFinal(ctx)
	l.awaitLastEvent(ctx, watched)
	stopWatching()
	<-watched
}

// settle waits until no rollout is unfinished, or until longest; the judge then reports the
// unfinished ones.
func (l *load) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := l.patient.QueryRollouts(ctx, agl.QueryRolloutsParams{
			StatusIn: []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutPreparing, agl.RolloutRunning, agl.RolloutRequeuing},
			Paging:   agl.Paging{Limit: 1},
		})
		if err == nil && page.Total == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// random returns a separate random stream for each simulated process.
func (l *load) random(kind, i int) *rand.Rand {
	return rand.New(rand.NewPCG(l.seed, uint64(kind)<<32|uint64(i)))
}

// mark makes a document that an update writes; markOf reads it.
func mark(n int64) jsontext.Value { return jsontext.Value(`{"mark":` + strconv.FormatInt(n, 10) + `}`) }

func markOf(document jsontext.Value) int64 {
	raw, found := rawjson.Get(document, "mark")
	if !found {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// sum returns a checksum of a span's content.
func sum(s *agl.Span) uint32 {
	return crc32.ChecksumIEEE(append([]byte(s.Name), s.Attributes...))
}

func sawAttempt(a *agl.Attempt) *history.Attempt {
	if a == nil {
		return nil
	}
	return &history.Attempt{
		ID: a.AttemptID, Number: a.SequenceID, Status: string(a.Status), Start: nanoseconds(a.StartTime),
		Worker: a.WorkerID.V, Mark: markOf(a.Metadata),
	}
}

// nanoseconds returns a time of the wire in nanoseconds.
func nanoseconds(t agl.Timestamp) int64 { return int64(float64(t)*1e6) * 1e3 }

func sawRollout(r *agl.Rollout, a *agl.Attempt) history.Rollout {
	task, _ := agl.Attributes(r.Input).GetString("task")
	return history.Rollout{ID: r.RolloutID, Task: task, Status: string(r.Status), Mark: markOf(r.Metadata), Attempt: sawAttempt(a)}
}

func sawSpan(s *agl.Span) history.Span {
	return history.Span{ID: s.SpanID, Attempt: s.AttemptID, Sequence: s.SequenceID, Sum: sum(s), Reward: s.Name == agl.SpanReward}
}
