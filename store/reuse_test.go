package store_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
)

// kept are values that a batch has handed out, each as it was then.
type kept struct {
	mu     sync.Mutex
	values []rawjson.Appender
	then   [][]byte
}

func (k *kept) keep(values ...rawjson.Appender) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range values {
		k.values = append(k.values, v)
		k.then = append(k.then, v.AppendJSON(nil))
	}
}

// formatted is a value without a wire form.
type formatted struct{ value any }

func (f formatted) AppendJSON(dst []byte) []byte { return fmt.Appendf(dst, "%+v", f.value) }

// keepingDriver keeps what the engine hands to its driver.
type keepingDriver struct {
	driver.Driver

	kept *kept
}

func (d keepingDriver) Begin(ctx context.Context) (driver.Tx, error) {
	tx, err := d.Driver.Begin(ctx)
	return keepingTx{tx, d.kept}, err
}

type keepingTx struct {
	driver.Tx

	kept *kept
}

func (t keepingTx) Apply(ctx context.Context, c *driver.Changes) error {
	for _, r := range c.Rollouts {
		t.kept.keep(r.Rollout)
	}
	for _, a := range c.Attempts {
		t.kept.keep(a.Attempt)
	}
	for _, w := range c.Workers {
		t.kept.keep(w)
	}
	for _, u := range c.Resources {
		t.kept.keep(u)
	}
	for _, d := range c.Documents {
		t.kept.keep(d)
	}
	for i := range c.Spans {
		t.kept.keep(formatted{c.Spans[i]}) // with the payload, which drivers may keep
	}
	for i := range c.Keys {
		t.kept.keep(formatted{c.Keys[i]})
	}
	return t.Tx.Apply(ctx, c)
}

// TestReusedMemory runs batches that reuse the memory of earlier ones. Nothing that a
// caller or the driver got may change by it.
func TestReusedMemory(t *testing.T) {
	t.Parallel()
	d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	var k kept
	s, err := store.New(t.Context(), store.Config{Driver: keepingDriver{d, &k}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 25 {
				if err := k.round(t.Context(), s, i, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if len(k.values) < 1000 {
		t.Errorf("kept %d values, want more", len(k.values))
	}
	for i, v := range k.values {
		if now := v.AppendJSON(nil); !bytes.Equal(now, k.then[i]) {
			t.Fatalf("a %T was %s, and is %s after later batches", v, k.then[i], now)
		}
	}
}

// round makes one call of each kind, and keeps the answers.
func (k *kept) round(ctx context.Context, s *store.Store, caller, n int) error {
	number := strconv.Itoa(caller) + "-" + strconv.Itoa(n)
	worker := "w" + number
	doc := jsontext.Value(`{"n":"` + number + `"}`)
	enqueued, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{
		Rollouts: []agl.EnqueueRollout{{Input: doc, Metadata: doc}, {Input: doc}}, IdempotencyKey: number,
	})
	if err != nil {
		return err
	}
	for i := range enqueued {
		k.keep(&enqueued[i])
	}
	claimed, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 2, WorkerID: agl.Some(worker)})
	if err != nil {
		return err
	}
	for i := range claimed.Rollouts {
		r := &claimed.Rollouts[i]
		k.keep(r)
		added, err := s.AddSpans(ctx, agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: number, Name: number, Attributes: agl.Attributes(doc),
		}}})
		if err != nil {
			return err
		}
		k.keep(&added.Stored[0])
		status := agl.AttemptSucceeded
		a, err := s.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status, Metadata: doc})
		if err != nil {
			return err
		}
		k.keep(&a)
	}
	w, err := s.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: worker, HeartbeatStats: doc})
	if err != nil {
		return err
	}
	u, err := s.AddResources(ctx, agl.AddResourcesParams{Resources: agl.Resources{{Name: number, Resource: agl.PromptTemplate{Template: number, Engine: agl.PromptJinja}}}})
	if err != nil {
		return err
	}
	documents, err := s.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{Kind: "run", ID: strconv.Itoa(caller), Body: doc}}})
	if err != nil {
		return err
	}
	k.keep(&w, &u, &documents[0])
	return nil
}
