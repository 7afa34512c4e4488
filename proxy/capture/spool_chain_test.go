package capture

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/spool"
)

// spoolTest is a spool of calls, and what must come out of it.
type spoolTest struct {
	dir    string
	limit  int64
	ledger *ledger
	spool  *callSpool
	calls  int
	want   map[int64][]string // spans by sequence id, for those that are not done
}

func (s *spoolTest) open(t interface{ Fatal(args ...any) }) {
	s.ledger = newLedger()
	var err error
	if s.spool, _, err = openSpool(s.dir, s.limit, s.ledger, &memory{limit: 1 << 40}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

func (s *spoolTest) close(t interface{ Fatal(args ...any) }) {
	if err := s.spool.close(); err != nil {
		t.Fatal(err)
	}
}

// call returns the entry of a call with these messages, which has its sequence id.
func (s *spoolTest) call(t interface{ Fatal(args ...any) }, attemptID string, messages []string) *entry {
	s.calls++
	sequence := int64(s.calls)
	e := &entry{start: time.Unix(sequence, 0), mark: s.spool.mark("r", attemptID), memory: (&memory{limit: 1 << 40}).take(1), sequenceState: sequenceGiven, sequenceID: sequence, recordedID: sequence}
	s.ledger.begin("r", attemptID, e)
	for i, name := range []string{"request", "call", "raw"} {
		var attrs []agl.Attr
		for n, m := range messages[:len(messages)*min(i, 1)] {
			attrs = append(attrs, agl.Attr{Key: name + "." + strconv.Itoa(n), Value: m})
		}
		attributes, err := agl.NewAttributes(attrs...)
		if err != nil {
			t.Fatal(err)
		}
		span := agl.Span{RolloutID: "r", AttemptID: attemptID, SequenceID: sequence, SpanID: fmt.Sprint(s.calls, name), Name: name, Attributes: attributes}
		e.spans = append(e.spans, span.AppendJSON(nil))
	}
	s.want[sequence] = texts(e.spans)
	return e
}

func texts(documents []jsontext.Value) (list []string) {
	for _, d := range documents {
		list = append(list, string(d))
	}
	return list
}

// check reads all that is in the spool.
func (s *spoolTest) check(t interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
},
) {
	got := map[int64][]string{}
	for _, e := range s.spool.spooled {
		e.recordedID = e.sequenceID
		spans, err := s.spool.load(e)
		if err != nil {
			t.Fatal(err)
		}
		got[e.sequenceID] = texts(spans)
	}
	for sequence, want := range s.want {
		if !slices.Equal(want, got[sequence]) {
			t.Fatalf("call %d (-want +got):\n%s", sequence, cmp.Diff(want, got[sequence]))
		}
	}
}

// TestSpoolOfConversation holds what a conversation says, not its square, and gives it back
// to this process and to the next.
func TestSpoolOfConversation(t *testing.T) {
	t.Parallel()
	const turns = 64
	s := &spoolTest{dir: t.TempDir(), limit: 1 << 30, want: map[int64][]string{}}
	s.open(t)
	var messages []string
	said := 0
	for n := range turns {
		messages = append(messages, strings.Repeat(fmt.Sprintf("%d is said ", n), 100))
		said += len(messages[n])
		if left := s.spool.put([]*entry{s.call(t, "a", messages)}); len(left) > 0 {
			t.Fatal("the spool is full")
		}
	}
	if used, limit := s.spool.records.Used(), int64(2*said); used > limit {
		t.Errorf("the spool has %d bytes of %d that were said, want at most %d", used, said, limit)
	}
	s.check(t)
	s.close(t)
	s.open(t)
	s.check(t)
	if size := s.spool.spooled[turns-1].spanBytes; size < said {
		t.Errorf("the spans of the last call are said to have %d bytes, they have at least %d", size, said)
	}
	s.close(t)
}

// TestFullDiskIsLoggedSeldom: where no mark can be written, not every call is a line of the log.
func TestFullDiskIsLoggedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &spoolTest{dir: t.TempDir(), limit: 1 << 30}
		s.open(t)
		var log strings.Builder
		s.spool.log = slog.New(slog.NewTextHandler(&log, nil))
		s.close(t)
		for range 100 {
			s.spool.mark("r", "a")
			time.Sleep(time.Second)
		}
		if got := strings.Count(log.String(), "file already closed"); got != 4 {
			t.Errorf("100 seconds of calls made %d lines, want 4:\n%s", got, log.String())
		}
	})
}

// TestAnyHistoryInSpool has calls with random edits in parallel branches, of which some are delivered, over segments
// and restarts.
func TestAnyHistoryInSpool(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := &spoolTest{dir: filepath.Join(t.TempDir(), "spool"), limit: 512 << 10, want: map[int64][]string{}}
		s.open(rt)
		branches := make([][]string, 3)
		source := rand.New(rand.NewPCG(1, 2)) // what cannot be compressed fills segments
		for range rapid.IntRange(1, 15).Draw(rt, "batches") {
			var batch []*entry
			for range rapid.IntRange(1, 4).Draw(rt, "calls") {
				at := rapid.IntRange(0, len(branches)-1).Draw(rt, "branch")
				b := slices.Clone(branches[at])
				if len(b) > 0 && rapid.IntRange(0, 4).Draw(rt, "edit") == 0 {
					b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] = "edited"
				}
				said := make([]byte, rapid.IntRange(1, 4000).Draw(rt, "bytes"))
				for n := range said {
					said[n] = "0123456789abcdef \"\\"[source.IntN(19)]
				}
				branches[at] = append(b, string(said))
				batch = append(batch, s.call(rt, "a"+strconv.Itoa(at/2), branches[at]))
			}
			for _, e := range s.spool.put(batch) {
				delete(s.want, e.sequenceID) // it did not fit
			}
			for len(s.spool.spooled) > 0 && rapid.IntRange(0, 2).Draw(rt, "deliver") == 0 {
				e := s.spool.spooled[0]
				s.spool.took([]*entry{e}, nil)
				s.spool.records.Done(e.ref)
				delete(s.want, e.sequenceID)
			}
			if rapid.IntRange(0, 5).Draw(rt, "check") == 0 {
				s.check(rt)
			}
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				s.close(rt)
				s.open(rt)
			}
		}
		s.check(rt)
		s.close(rt)
	})
}

// TestSpoolOfVersionBefore reads the records of the version that had whole spans.
func TestSpoolOfVersionBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	written := spoolTest{dir: filepath.Join(dir, "other"), limit: 1 << 20, want: map[int64][]string{}}
	written.open(t)
	e := written.call(t, "a", []string{"one", strings.Repeat("two", 1000)})
	written.close(t)
	log, err := spool.Open(filepath.Join(dir, "spool"), 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := []byte{1}
	for _, n := range []int64{77, e.start.UnixNano(), e.sequenceID} {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	raw = append(raw, "\x01r\x01a["...)
	for i, document := range e.spans {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = append(raw, document...)
	}
	at, err := log.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.AppendAt(at, [][]byte{append(raw, ']')}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s := spoolTest{dir: filepath.Join(dir, "spool"), limit: 1 << 20, want: written.want}
	s.open(t)
	s.check(t)
	// Calls of this version continue beside it.
	s.calls = 1
	if left := s.spool.put([]*entry{s.call(t, "a", []string{"one", strings.Repeat("two", 1000), "three"})}); len(left) > 0 {
		t.Fatal("the spool is full")
	}
	s.check(t)
	s.close(t)
}

// FuzzSpoolEntry reads any bytes as a record.
func FuzzSpoolEntry(f *testing.F) {
	s := spoolEntry{uid: 1, rolloutID: "r", attemptID: "a", size: 9, spans: []spooledSpan{{bytes: []byte(`{"a":1}`)}, {base: placeOf(5, 1), bytes: []byte("delta")}}}
	f.Add(s.encode())
	f.Add(append([]byte{1}, s.encode()[1:]...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := parseSpoolEntry(raw)
		if err != nil || raw[0] != entryVersion {
			return
		}
		again, err := parseSpoolEntry(got.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmp.AllowUnexported(spoolEntry{}, spooledSpan{})); diff != "" {
			t.Fatal(diff)
		}
	})
}
