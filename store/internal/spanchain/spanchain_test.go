package spanchain_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

// document is the document of a call with these messages.
func document(id string, messages []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"span_id":%q,"attributes":{"system":"x"`, id)
	for i, m := range messages {
		fmt.Fprintf(&b, `,"prompt.%d":%q`, i, m)
	}
	return b.String() + `}}`
}

// log shortens spans one by one, keeps them, and finds chains as a driver does.
type log struct {
	t      *testing.T
	chains *spanchain.Shortener
	stored map[driver.SpanKey]driver.StoredSpan
	bytes  int // of the payloads
}

func newLog(t *testing.T, memory int) *log {
	t.Helper()
	return &log{t: t, chains: spanchain.New(memory), stored: map[driver.SpanKey]driver.StoredSpan{}}
}

func (l *log) add(attempt, id, document string) driver.StoredSpan {
	l.t.Helper()
	record := driver.SpanRecord{SpanKey: driver.SpanKey{RolloutID: "r", AttemptID: attempt, SpanID: id}, Name: "call", Payload: []byte(document)}
	layouts := []*spandelta.Layout{l.chains.Layout(record.Payload)}
	records := []driver.SpanRecord{record}
	l.chains.Shorten(records, layouts) // of a commit that fails
	records[0] = record
	l.chains.Shorten(records, layouts)
	l.chains.Committed()
	s := driver.StoredSpan{SpanKey: record.SpanKey, Base: records[0].Base, Payload: records[0].Payload}
	l.stored[s.SpanKey] = s
	l.bytes += len(s.Payload)
	got, err := l.chains.Expand(l.t.Context(), l, []driver.StoredSpan{s})
	if err != nil || string(got[0]) != document {
		l.t.Fatalf("span %s is %.200q, error %v, want %.200q", id, got, err, document)
	}
	return s
}

func (l *log) SpanChains(_ context.Context, attempt driver.AttemptKey, ids []string) (out []driver.StoredSpan, err error) {
	for _, id := range ids {
		for id != "" {
			s, found := l.stored[driver.SpanKey{RolloutID: attempt.RolloutID, AttemptID: attempt.AttemptID, SpanID: id}]
			if !found {
				break
			}
			out, id = append(out, s), s.Base
		}
	}
	return out, nil
}

func message(branch, i int) string { return strings.Repeat(fmt.Sprintf("%d says %d ", branch, i), 100) }

// TestBranches has conversations that run beside each other in one attempt: each continues
// its own.
func TestBranches(t *testing.T) {
	t.Parallel()
	const branches, turns = 6, 60
	l := newLog(t, spandelta.DefaultMemory)
	conversations := make([][]string, branches)
	said := 0
	for i := range turns {
		for b := range branches {
			conversations[b] = append(conversations[b], message(b, i))
			said += len(message(b, i))
			id := fmt.Sprintf("%d-%d", b, i)
			l.add("at", id, document(id, conversations[b]))
		}
	}
	if limit := said * 3 / 2; l.bytes > limit {
		t.Errorf("%d bytes are kept of %d that were said, want at most %d", l.bytes, said, limit)
	}
}

// TestBoundedMemory forgets attempts when there are too many. Their next spans are whole.
func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	const attempts = 100
	l := newLog(t, 40_000)
	said := make([][]string, attempts)
	for i := range 3 {
		for a := range attempts {
			said[a] = append(said[a], message(a, i), message(a, i+100))
			s := l.add(fmt.Sprint("at-", a), fmt.Sprint(i), document(fmt.Sprint(i), said[a]))
			if s.Base != "" {
				t.Errorf("attempt %d: a layout of %d attempts before is remembered", a, attempts-1)
			}
		}
	}
	said[99] = append(said[99], message(99, 3))
	if s := l.add("at-99", "3", document("3", said[99])); s.Base != "2" {
		t.Errorf("the latest attempt continues %q, want span 2", s.Base)
	}
}

// TestMissing tells a missing base from other damage.
func TestMissing(t *testing.T) {
	t.Parallel()
	l := newLog(t, spandelta.DefaultMemory)
	messages := []string{message(1, 1), message(1, 2), message(1, 3), message(1, 4)}
	first := l.add("at", "1", document("1", messages))
	second := l.add("at", "2", document("2", append(messages, "more")))
	if first.Base != "" || second.Base != "1" {
		t.Fatalf("bases %q and %q, want none and 1", first.Base, second.Base)
	}
	delete(l.stored, first.SpanKey)
	if _, err := l.chains.Expand(t.Context(), l, []driver.StoredSpan{second}); !spanchain.IsMissing(err) || !strings.Contains(err.Error(), "span r/at/2") {
		t.Errorf("error %v, want that the base of span r/at/2 is missing", err)
	}
	first.Payload = []byte(document("1", []string{message(2, 1), message(1, 2), message(1, 3)}))
	l.stored[first.SpanKey] = first
	if _, err := l.chains.Expand(t.Context(), l, []driver.StoredSpan{second}); err == nil || spanchain.IsMissing(err) {
		t.Errorf("error %v, want that the base is another document", err)
	}
}
