package archive_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/archive"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/sqlite"
)

func newMemory(tb testing.TB, spanBytes int64) *memory.Driver {
	tb.Helper()
	config := memory.Config{CapacityBytes: 1 << 40}
	if spanBytes > 0 {
		config.EvictionThreshold.Bytes, config.SafeThreshold.Bytes = spanBytes, spanBytes/2
	}
	d, err := memory.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func reopen(t *testing.T, d driver.Driver) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// populate fills a store through its own operations: n rollouts in every state.
func populate(t *testing.T, n int) *memory.Driver {
	t.Helper()
	d := newMemory(t, 0)
	s := reopen(t, d)
	defer closeStore(t, s)
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"rs-b", "rs-a", "rs-b"} {
		_, err := s.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: id, IdempotencyKey: "", Resources: agl.Resources{
			{Name: "m", Resource: agl.LLM{Endpoint: "e", Model: "m", SamplingParameters: jsontext.Value("{\"t\":\n1.0}")}},
			{Name: "p", Resource: agl.PromptTemplate{Template: "{{ x }}\n", Engine: agl.PromptJinja}},
		}})
		check(err)
	}
	raw := jsontext.Value("{ \"n\" : 1.0,\r\n \"big\":12345678901234567890, \"a\":1, \"a\":2, \"raw\":\"\\u0000é😀\" }")
	_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, n), IdempotencyKey: "all"})
	check(err)
	for i := range n {
		worker := agl.Some(fmt.Sprint("w", i%3))
		got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: worker, IdempotencyKey: fmt.Sprint("d", i)})
		check(err)
		r := got.Rollouts[0]
		span := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Attributes: agl.Attributes(raw), TraceID: "t", Name: "n"}
		for j := range i % 4 {
			span.SpanID = fmt.Sprint("s", j)
			_, err := s.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true})
			check(err)
		}
		status := agl.RolloutStatuses()[i%7]
		if status != agl.RolloutPreparing && status != agl.RolloutRunning {
			mode := agl.ModeVal
			_, err = s.UpdateRollout(ctx, agl.UpdateRolloutParams{RolloutID: r.RolloutID, Status: &status, Metadata: raw, Input: raw, Mode: &mode})
			check(err)
		}
		_, err = s.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID, Count: 3})
		check(err)
		_, err = s.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: worker.V, HeartbeatStats: raw})
		check(err)
		if i%7 == 4 {
			b, err := d.Begin(ctx)
			check(err)
			check(b.Apply(ctx, &driver.Changes{EvictedRollouts: []string{r.RolloutID}}))
			if _, err := s.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}}); i%2 == 0 {
				check(err)
			}
		}
	}
	_, err = s.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{RolloutID: "ghost"})
	check(err)
	check(s.CloseQueue(ctx))
	return d
}

func export(t *testing.T, d driver.Driver) []byte {
	t.Helper()
	var b bytes.Buffer
	counts, err := archive.Export(t.Context(), d, &b)
	if err != nil {
		t.Fatal(err)
	}
	if counts.Bytes != int64(b.Len()) {
		t.Errorf("counted %d bytes, wrote %d", counts.Bytes, b.Len())
	}
	return b.Bytes()
}

// body is an export without its header.
func body(file []byte) string {
	_, rest, _ := bytes.Cut(file, []byte("\n"))
	return string(rest)
}

func wantCopy(t *testing.T, copied driver.Driver, file []byte) {
	t.Helper()
	got, want := strings.Split(body(export(t, copied)), "\n"), strings.Split(body(file), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("line %d of the copy is\n%.300s\nwant\n%.300s", i+2, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("the copy has %d lines, want %d", len(got)+1, len(want)+1)
	}
}

func TestExportImport(t *testing.T) {
	t.Parallel()
	source := populate(t, 60)
	file := export(t, source)
	copied := newMemory(t, 0)
	var last archive.Counts
	counts, err := archive.Import(t.Context(), copied, bytes.NewReader(file), func(c archive.Counts) { last = c })
	if err != nil {
		t.Fatal(err)
	}
	if counts != last || counts.Rollouts != 60 || counts.Bytes != int64(len(file)) {
		t.Errorf("imported %+v, told of %+v, want 60 rollouts in %d bytes", counts, last, len(file))
	}
	wantCopy(t, copied, file)
	a, b := reopen(t, source), reopen(t, copied)
	defer closeStore(t, a)
	defer closeStore(t, b)
	// What is not in the lines is the same too: what comes next.
	for _, s := range []*store.Store{a, b} {
		if err := s.OpenQueue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(s *store.Store) (out []string) {
		t.Helper()
		note := func(v any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(v))
		}
		replayed, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 60), IdempotencyKey: "all"})
		note(len(replayed), err)
		for _, r := range replayed {
			first, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID})
			note(first, err)
			page, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
			if errors.Is(err, agl.ErrEvicted) {
				page.Total, err = -1, nil
			}
			note(page.Total, err)
		}
		claimed, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 100})
		for _, r := range claimed.Rollouts {
			note(fmt.Sprint(r.RolloutID, r.Attempt.SequenceID), err)
		}
		latest, err := s.GetLatestResources(t.Context())
		note(latest.ResourcesID, err)
		claim, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w1"), IdempotencyKey: "d1"})
		note(claim.Rollouts[0].RolloutID+claim.Rollouts[0].Attempt.AttemptID, err)
		return out
	}
	got, want := answers(b), answers(a)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the copy goes on with\n%v\nwant\n%v", got, want)
	}
}

// TestImportResumed interrupts an import at each of its commits.
func TestImportResumed(t *testing.T) {
	t.Parallel()
	file := export(t, populate(t, 900)) // several batches
	for _, behind := range []bool{false, true} {
		for at := 1; ; at++ {
			d := &failing{Driver: newMemory(t, 0), in: at, behind: behind}
			_, err := archive.Import(t.Context(), d, bytes.NewReader(file), nil)
			if err == nil {
				if at < 5 {
					t.Errorf("the import made %d commits, want several", at-1)
				}
				break
			}
			_, err = archive.Import(t.Context(), d.Driver, bytes.NewReader(file), nil)
			if complete := errors.Is(err, agl.ErrConflict) && strings.Contains(err.Error(), "already"); err != nil && (!complete || !behind) {
				t.Fatalf("interrupted at commit %d (behind it: %v), then: %v", at, behind, err)
			}
			wantCopy(t, d.Driver, file)
		}
	}
}

// TestImportUnfinished kills an import into a file: nobody serves the part, and once the
// import is complete the sequence ids go on where they were.
func TestImportUnfinished(t *testing.T) {
	t.Parallel()
	source := newMemory(t, 0)
	s := newEngine(t, source)
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteDocuments(t.Context(), agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{Kind: "run", ID: "a", Body: jsontext.Value(`{}`)}}}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := archive.Export(t.Context(), source, &file); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agl.db")
	for at := 1; at <= 2; at++ {
		half, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Import(t.Context(), &failing{Driver: half, in: at, behind: true}, bytes.NewReader(file.Bytes()), nil); err == nil {
			t.Fatal("was not interrupted")
		}
		if _, err := store.New(t.Context(), store.Config{Driver: half}); !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("served a part of an export, error %v", err)
		}
		var again bytes.Buffer
		if _, err := archive.Export(t.Context(), half, &again); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("exported a part of an export, error %v", err)
		}
		path = killed(t, path)
		if err := half.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Import(t.Context(), whole, bytes.NewReader(file.Bytes()), nil); err != nil {
		t.Fatal(err)
	}
	served := newEngine(t, whole)
	first, err := served.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID})
	if err != nil || first != 1 {
		t.Errorf("the first sequence id is %d, error %v, want 1", first, err)
	}
	if _, err := served.GetDocument(t.Context(), "run", "a"); err != nil {
		t.Error(err)
	}
}

// What a store notes of its clock is no data: a file that was served and stayed empty takes an import,
// and no export has it.
func TestClockIsNoData(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	source := newMemory(t, 0)
	if _, err := newEngine(t, source).EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`1`)}}}); err != nil {
		t.Fatal(err)
	}
	var file, again bytes.Buffer
	if _, err := archive.Export(t.Context(), source, &file); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), "sqlite:"+path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	if _, err := d.Document(t.Context(), driver.ClockNote()); err != nil && runtime.GOOS == "linux" {
		t.Errorf("the clock is not noted: %v", err)
	}
	if _, err := archive.Import(t.Context(), d, &file, nil); err != nil {
		t.Error(err)
	}
	if counts, err := archive.Export(t.Context(), d, &again); err != nil || counts.Documents != 0 || counts.Rollouts != 1 {
		t.Errorf("exported %+v, %v", counts, err)
	}
}

func newEngine(t *testing.T, d driver.Driver) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestImportCut truncates the file at random places, then imports all of it into the
// same database.
func TestImportCut(t *testing.T) {
	t.Parallel()
	file := export(t, populate(t, 40))
	random := rand.New(rand.NewPCG(1, 2))
	cuts := []int{0, 1, bytes.IndexByte(file, '\n'), bytes.IndexByte(file, '\n') + 1, len(file) - 2, bytes.LastIndexByte(file[:len(file)-1], '\n') + 1}
	for range 100 {
		cuts = append(cuts, random.IntN(len(file)-1))
	}
	for _, cut := range cuts {
		d := newMemory(t, 0)
		_, err := archive.Import(t.Context(), d, bytes.NewReader(file[:cut]), nil)
		if !errors.Is(err, agl.ErrInvalid) || cut > 0 && !strings.Contains(err.Error(), "cut off") {
			t.Fatalf("cut at %d of %d: error %v, want one that says so", cut, len(file), err)
		}
		if _, err := archive.Import(t.Context(), d, bytes.NewReader(file), nil); err != nil {
			t.Fatalf("cut at %d, then whole: %v", cut, err)
		}
		wantCopy(t, d, file)
	}
	if _, err := archive.Import(t.Context(), newMemory(t, 0), bytes.NewReader(file[:len(file)-1]), nil); err != nil {
		t.Errorf("without its last line break: %v", err)
	}
}

// TestImportDamaged changes one byte, and leaves out or repeats one line.
func TestImportDamaged(t *testing.T) {
	t.Parallel()
	file := export(t, populate(t, 40))
	random := rand.New(rand.NewPCG(3, 4))
	wantDamage := func(what string, bad []byte, line int) {
		t.Helper()
		_, err := archive.Import(t.Context(), newMemory(t, 0), bytes.NewReader(bad), nil)
		if !errors.Is(err, agl.ErrInvalid) {
			t.Fatalf("%s: error %v, want invalid", what, err)
		}
		if line > 0 && !strings.Contains(err.Error(), fmt.Sprintf("line %d ", line)) {
			t.Errorf("%s in line %d: error %v, want one that names it", what, line, err)
		}
	}
	for range 200 {
		bad := bytes.Clone(file)
		at := random.IntN(len(bad) - 1)
		bad[at] ^= byte(1 + random.IntN(255))
		wantDamage(fmt.Sprint("byte ", at), bad, 1+bytes.Count(file[:at], []byte("\n")))
	}
	lines := bytes.SplitAfter(file, []byte("\n"))
	for _, i := range []int{0, 1, 5, len(lines) / 2, len(lines) - 3, len(lines) - 2} {
		wantDamage("left out", bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil), 0)
		wantDamage("repeated", bytes.Join(append(append([][]byte{}, lines[:i+1]...), lines[i:]...), nil), 0)
	}
}

func TestImportCompressed(t *testing.T) {
	t.Parallel()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(export(t, populate(t, 3))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{
		"an export":        compressed.Bytes(),
		"without line end": bytes.ReplaceAll(compressed.Bytes(), []byte("\n"), nil),
	} {
		_, err := archive.Import(t.Context(), newMemory(t, 0), bytes.NewReader(file), nil)
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "compressed by gzip") {
			t.Errorf("%s: got error %v, want one that says what the file is", name, err)
		}
	}
}

func TestImportRefusesOtherData(t *testing.T) {
	t.Parallel()
	first, second := export(t, populate(t, 8)), populate(t, 8)
	page, err := second.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: agl.Paging{Limit: 1}})
	if err != nil {
		t.Fatal(err)
	}
	before := body(export(t, second))
	_, err = archive.Import(t.Context(), second, bytes.NewReader(first), nil)
	if !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), page.Items[0].RolloutID) {
		t.Errorf("error %v, want one that names %s", err, page.Items[0].RolloutID)
	}
	if body(export(t, second)) != before {
		t.Error("the database was changed")
	}
	for _, c := range []driver.Changes{
		{Workers: []*agl.Worker{{WorkerID: "host-1", Status: agl.WorkerIdle}}},
		{Resources: []*agl.ResourcesUpdate{{ResourcesID: "host-1", Version: 1}}},
	} {
		d := newMemory(t, 0)
		b, err := d.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Apply(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
		if _, err = archive.Import(t.Context(), d, bytes.NewReader(first), nil); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "host-1") {
			t.Errorf("error %v, want one that names host-1", err)
		}
	}
	d := newMemory(t, 0)
	if _, err := archive.Import(t.Context(), d, bytes.NewReader(first), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Import(t.Context(), d, bytes.NewReader(first), nil); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second time: error %v, want conflict", err)
	}
	// Half of it is there, and was changed since.
	half := newMemory(t, 0)
	if _, err := archive.Import(t.Context(), half, bytes.NewReader(first[:len(first)-200]), nil); err == nil {
		t.Fatal("imported half a file")
	}
	if _, err := archive.Import(t.Context(), &failing{Driver: half, in: 3}, bytes.NewReader(first), nil); err == nil {
		t.Fatal("was not interrupted")
	}
	tx, err := half.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Apply(t.Context(), &driver.Changes{Workers: []*agl.Worker{{WorkerID: "w1", Status: agl.WorkerUnknown}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Import(t.Context(), half, bytes.NewReader(first), nil); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "worker w1") {
		t.Errorf("error %v, want one that names worker w1", err)
	}
}

// TestImportOfNewer: a record that only a newer program knows is no damage.
func TestImportOfNewer(t *testing.T) {
	t.Parallel()
	header, _, _ := strings.Cut(string(export(t, populate(t, 1))), "\n")
	_, err := archive.Import(t.Context(), newMemory(t, 0), strings.NewReader(header+"\n"+exportLine("novelty", "{}")), nil)
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "novelty") || !strings.Contains(err.Error(), "newer") || strings.Contains(err.Error(), "damaged") {
		t.Errorf("error %v, want one that asks for a newer program", err)
	}
}

// goldenData is a little of everything, with fixed ids and times.
func goldenData(tb testing.TB) *memory.Driver {
	tb.Helper()
	d, err := memory.New(memory.Config{CapacityBytes: 1 << 30, Lifetimes: driver.Lifetimes{IdempotencyTTL: 1 << 62}})
	if err != nil {
		tb.Fatal(err)
	}
	a := &agl.Attempt{RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 1, StartTime: 2.5, Status: agl.AttemptRunning, WorkerID: agl.Some("w")}
	span := agl.Span{RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 3, SpanID: "sp", TraceID: "tr", Name: "chat", Attributes: agl.Attributes(`{"n":1.0}`)}
	b, err := d.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	err = b.Apply(tb.Context(), &driver.Changes{
		Now: 10,
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "rs-1", CreateTime: 1, UpdateTime: 1, Version: 1, Resources: agl.Resources{
			{Name: "p", Resource: agl.PromptTemplate{Template: "{{ x }}", Engine: agl.PromptJinja}},
		}}},
		LatestResources: agl.Some("rs-1"),
		Workers:         []*agl.Worker{{WorkerID: "w", Status: agl.WorkerBusy, CurrentRolloutID: agl.Some("ro-1"), CurrentAttemptID: agl.Some("at-1")}},
		Rollouts: []driver.RolloutChange{
			{Rollout: &agl.Rollout{RolloutID: "ro-1", Input: jsontext.Value(`{"q": 1.0}`), StartTime: 2, Status: agl.RolloutRunning, Metadata: jsontext.Value(`{}`)}, New: true},
			{Rollout: &agl.Rollout{RolloutID: "ro-2", Input: jsontext.Value("[\n1]"), StartTime: 3, Status: agl.RolloutQueuing, Mode: agl.ModeTrain}, New: true},
			{Rollout: &agl.Rollout{RolloutID: "ro-3", Input: jsontext.Value("0"), StartTime: 4, EndTime: agl.Some(agl.Timestamp(5)), Status: agl.RolloutFailed}, New: true},
		},
		Attempts:        []driver.AttemptChange{{Attempt: a, New: true}},
		Spans:           []driver.SpanRecord{{SpanKey: driver.SpanKey{RolloutID: "ro-1", AttemptID: "at-1", SpanID: "sp"}, SequenceID: 3, TraceID: "tr", Name: "chat", Payload: span.AppendJSON(nil)}},
		Sequences:       []driver.Sequence{{RolloutID: "ro-1", Last: 3}},
		EvictedRollouts: []string{"ro-3"},
		QueueClosed:     agl.Some(true),
		Keys:            []driver.IdempotencyRecord{{Scope: "dequeue  k", Fingerprint: "f", CreateTime: 10, Made: []driver.AttemptKey{{RolloutID: "ro-1", AttemptID: "at-1"}}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestExportGolden(t *testing.T) {
	t.Parallel()
	got := export(t, goldenData(t))
	header := regexp.MustCompile(`^\{"kind":"header","value":\{"format":"agl-export","version":1,"export_id":"ex-[0-9a-f]{16}","created":[0-9.]+,"driver":"memory"\},"crc32c":"[0-9a-f]{8}"\}\n`)
	if !header.Match(got) {
		t.Errorf("the header is %.200s", got)
	}
	name := filepath.Join("testdata", "export.jsonl")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if body(got) != body(want) {
		t.Errorf("exported\n%s\nwant\n%s", got, want)
	}
	// What was written once is read for ever.
	d, err := memory.New(memory.Config{CapacityBytes: 1 << 30, Lifetimes: driver.Lifetimes{IdempotencyTTL: 1 << 62}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Import(t.Context(), d, bytes.NewReader(want), nil); err != nil {
		t.Fatal(err)
	}
	wantCopy(t, d, want)
}

// exportLine writes a line as the format has it.
func exportLine(kind, value string) string {
	line := `{"kind":"` + kind + `","value":` + value
	return line + fmt.Sprintf(`,"crc32c":"%08x"}`+"\n", crc32.Checksum([]byte(line), crc32.MakeTable(crc32.Castagnoli)))
}

// FuzzImport reads a line that is whole, whatever it says, behind a good header
// and as the header.
func FuzzImport(f *testing.F) {
	var b bytes.Buffer
	if _, err := archive.Export(f.Context(), goldenData(f), &b); err != nil {
		f.Fatal(err)
	}
	header, rest, _ := strings.Cut(b.String(), "\n")
	for line := range strings.Lines(rest) {
		line, _, _ = strings.Cut(strings.TrimPrefix(line, `{"kind":"`), `,"crc32c"`)
		if kind, value, plain := strings.Cut(line, `","value":`); plain {
			f.Add(kind, value)
		}
	}
	f.Fuzz(func(t *testing.T, kind, value string) {
		line := exportLine(kind, value)
		for _, file := range []string{
			line, header + "\n" + line,
			header + "\n" + line + exportLine("state", `{"queue_closed":false,"latest_resources":null}`) + exportLine("trailer", `{"`+kind+`s":1}`),
		} {
			d := newMemory(t, 0)
			_, err := archive.Import(t.Context(), d, strings.NewReader(file), nil)
			switch agl.ErrorCode(err) {
			case "", agl.CodeInvalid, agl.CodeConflict:
			default:
				t.Fatalf("error %v, want invalid or a conflict", err)
			}
		}
	})
}
