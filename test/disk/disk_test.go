package disk

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/process"
)

var (
	damages  = flag.Int("damages", 40, "how many copies of a database are damaged")
	seedFlag = flag.Uint64("seed", 0, "what decides which damages; 0 picks one")
)

// aglBinary is the real agl command, built by TestMain.
var aglBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(process.Main(m, &aglBinary))
}

// longest bounds every wait. It is reached only by a failure.
const longest = 3 * time.Minute

func connect(t *testing.T, s *process.Server) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: s.URL(), RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// writer makes one write after the other, so that the acknowledged writes have an order.
// Write n stores the span number n and then sets the mark n in the attempt's metadata. Every
// tenth write begins a new rollout.
type writer struct {
	t      *testing.T
	store  agl.Store
	random *rand.Rand
	claim  agl.AttemptedRollout
	sent   []agl.Span // the acknowledged ones, by number
}

const perRollout = 10

// write makes the parts of the next write in order. If one of them fails, write returns its
// error; the parts before it are acknowledged.
func (w *writer) write() error {
	ctx := w.t.Context()
	if len(w.sent)%perRollout == 0 && (w.claim.Attempt == nil || len(w.sent) > 0) {
		_, err := w.store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`{"a":"task"}`)}}})
		if err != nil {
			return err
		}
		taken, err := w.store.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w")})
		if err != nil {
			return err
		}
		w.claim = taken.Rollouts[0]
	}
	span := w.span(len(w.sent))
	if _, err := w.store.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
		return err
	}
	w.sent = append(w.sent, span)
	_, err := w.store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
		RolloutID: span.RolloutID, AttemptID: span.AttemptID, Metadata: jsontext.Value(fmt.Sprintf(`{"mark":%d}`, len(w.sent)-1)),
	})
	return err
}

// span returns spans of many sizes, of which some can be compressed.
func (w *writer) span(n int) agl.Span {
	text := make([]byte, 20+w.random.IntN(2000))
	for i := range text {
		text[i] = byte(w.random.Uint32())
	}
	words := hex.EncodeToString(text)
	if n%3 == 0 {
		words = strings.Repeat("a text that is said again and again ", 1+w.random.IntN(200))
	}
	return agl.Span{
		RolloutID: w.claim.RolloutID, AttemptID: w.claim.Attempt.AttemptID, SequenceID: int64(n%perRollout) + 1,
		TraceID: "trace", SpanID: fmt.Sprintf("%06d", n), Name: "step", Status: agl.SpanStatus{Code: agl.StatusOK},
		Attributes: agl.Attributes(`{"text":"` + words + `"}`), StartTime: agl.Some(agl.Timestamp(n)), EndTime: agl.Some(agl.Timestamp(n + 1)),
	}
}

// same reports whether a span is the one that was sent.
func same(got, sent *agl.Span) bool {
	return string(got.AppendJSON(nil)) == string(sent.AppendJSON(nil))
}

// everything reads all spans through a store and returns them by their ids.
func everything(t *testing.T, s agl.Store) map[string]agl.Span {
	t.Helper()
	page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]agl.Span{}
	for _, r := range page.Items {
		spans, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range spans.Items {
			all[span.SpanID] = span
		}
	}
	return all
}

// checkKept fails for every acknowledged span that is missing or changed.
func (w *writer) checkKept(s agl.Store) {
	w.t.Helper()
	there := everything(w.t, s)
	for i := range w.sent {
		got, kept := there[w.sent[i].SpanID]
		if !kept || !same(&got, &w.sent[i]) {
			w.t.Errorf("span %s was acknowledged; it is there: %v, the same: false", w.sent[i].SpanID, kept)
		}
	}
}

// seed draws and prints the seed of a test.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := *seedFlag
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("seed %d", n)
	return rand.New(rand.NewPCG(n, 0))
}
