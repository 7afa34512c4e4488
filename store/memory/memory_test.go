package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/drivertest"
	"github.com/agl-go/agl/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(tb testing.TB) driver.Driver {
		tb.Helper()
		d, err := memory.New(memory.Config{})
		if err != nil {
			tb.Fatal(err)
		}
		return d
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	const capacity = 1000
	for _, tc := range []struct {
		name        string
		config      memory.Config
		evict, safe int64 // 0 is an error
	}{
		{"defaults", memory.Config{CapacityBytes: capacity}, 700, 560},
		{"ratios", memory.Config{CapacityBytes: capacity, EvictionThreshold: memory.Limit{Ratio: 0.5}, SafeThreshold: memory.Limit{Ratio: 0.5}}, 500, 250},
		{"bytes", memory.Config{EvictionThreshold: memory.Limit{Bytes: 90}, SafeThreshold: memory.Limit{Bytes: 30}}, 90, 30},
		{"all of it", memory.Config{CapacityBytes: capacity, EvictionThreshold: memory.Limit{Ratio: 1}}, 1000, 800},
		{"more than all", memory.Config{CapacityBytes: capacity, EvictionThreshold: memory.Limit{Ratio: 1.1}}, 0, 0},
		{"negative ratio", memory.Config{CapacityBytes: capacity, EvictionThreshold: memory.Limit{Ratio: -0.1}}, 0, 0},
		{"safe ratio of 1", memory.Config{CapacityBytes: capacity, SafeThreshold: memory.Limit{Ratio: 1}}, 0, 0},
		{"safe above eviction", memory.Config{EvictionThreshold: memory.Limit{Bytes: 30}, SafeThreshold: memory.Limit{Bytes: 30}}, 0, 0},
		{"negative capacity", memory.Config{CapacityBytes: -1}, 0, 0},
		{"negative events", memory.Config{Lifetimes: driver.Lifetimes{MaxEvents: -1}}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d, err := memory.New(tc.config)
			if tc.evict == 0 {
				if agl.ErrorCode(err) != agl.CodeInvalid {
					t.Fatalf("got error %v, want an invalid value", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			stats, err := d.Statistics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m := stats.Memory; m.EvictionThresholdBytes != tc.evict || m.SafeThresholdBytes != tc.safe {
				t.Errorf("thresholds are %d and %d, want %d and %d", m.EvictionThresholdBytes, m.SafeThresholdBytes, tc.evict, tc.safe)
			}
		})
	}
}

// TestEventLogIsBounded checks that a reader that comes too late gets a reset.
func TestEventLogIsBounded(t *testing.T) {
	t.Parallel()
	d, err := memory.New(memory.Config{Lifetimes: driver.Lifetimes{MaxEvents: 10}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	emit := func(now agl.Timestamp, n int) {
		b, err := d.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c := driver.Changes{Now: now, Events: make([]agl.Event, n)}
		if err := b.Apply(ctx, &c); err != nil {
			t.Fatal(err)
		}
	}
	read := func(after string) driver.EventList {
		list, err := d.Events(ctx, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	begin := read("").Last
	emit(1, 10)
	if list := read(begin); list.Reset || len(list.Events) != 10 {
		t.Fatalf("got %d events, reset %v, want 10", len(list.Events), list.Reset)
	}
	first := read(begin).Events[0].ID
	emit(2, 1)
	if !read(begin).Reset {
		t.Error("no reset, although the first event is gone")
	}
	if list := read(first); list.Reset || len(list.Events) != 10 {
		t.Errorf("got %d events, reset %v, want 10", len(list.Events), list.Reset)
	}
	emit(2+3601, 1)
	if list := read(first); !list.Reset {
		t.Errorf("got %d events of an hour ago", len(list.Events))
	}
	if list := read(read("").Last); list.Reset || len(list.Events) > 0 {
		t.Errorf("got %+v after the newest, want nothing", list)
	}
}

// TestDeletedIsFreed checks that nothing refers to deleted rollouts.
func TestDeletedIsFreed(t *testing.T) {
	const rollouts, inputBytes = 200, 50_000
	d, err := memory.New(memory.Config{CapacityBytes: 8 << 30})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.New(t.Context(), store.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	before := heap()
	for range rollouts {
		input := jsontext.Value(`"` + strings.Repeat("x", inputBytes) + `"`)
		r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: input}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: 1, TraceID: "t", SpanID: "s", Name: "n",
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: r.RolloutID}); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}); err != nil {
			t.Fatal(err)
		}
	}
	if used := heap() - before; used > rollouts*inputBytes/4 {
		t.Errorf("%d deleted rollouts of %d bytes hold %d bytes", rollouts, inputBytes, used)
	}
	runtime.KeepAlive(d)
}

// TestMemoryPerSpan bounds the memory of a stored span beyond its JSON.
func TestMemoryPerSpan(t *testing.T) {
	const (
		rollouts = 100
		each     = 500
		most     = 1.5
	)
	d, err := memory.New(memory.Config{CapacityBytes: 8 << 30})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.New(t.Context(), store.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	source := rand.New(rand.NewPCG(1, 2))
	before := heap()
	for range rollouts {
		r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range each {
			span := agl.Span{
				RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: int64(i + 1),
				TraceID: strings.Clone("0af7651916cd43dd8448eb211c80319c"), SpanID: fmt.Sprintf("%016x", i),
				ParentID: agl.Some(fmt.Sprintf("%016x", i/2)), Name: strings.Clone("openai.chat.completion"),
				StartTime: agl.Some(agl.Timestamp(i)), EndTime: agl.Some(agl.Timestamp(i + 1)), Attributes: agl.Attributes(fmt.Sprintf(`{"gen_ai.prompt.0.content":"%d%s"}`, source.Uint64(), strings.Repeat("x", 1080))),
			}
			if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	used := heap() - before
	stats, err := s.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	size := stats.Memory.TotalSpanBytes
	t.Logf("%d spans of %d bytes use %.3f of their JSON size", stats.TotalSpans, size/int64(stats.TotalSpans), float64(used)/float64(size))
	if float64(used) > most*float64(size) {
		t.Errorf("%d bytes of spans use %d bytes of memory, more than %g of it", size, used, most)
	}
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
