package spool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func open(t testing.TB, dir string, limit int64) (*Log, []string) {
	t.Helper()
	var found []string
	l, err := Open(dir, limit, func(_ Ref, record []byte) error {
		found = append(found, string(record))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, found
}

// appendTo adds records at the end.
func appendTo(l *Log, records [][]byte) ([]Ref, error) {
	at, err := l.Next()
	if err != nil {
		return nil, err
	}
	return l.AppendAt(at, records)
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// The log against a list in memory: whatever is appended and not done is read
// back and found again, in order, and room is given back.
func TestLogModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		const limit = 256 << 10
		l, _ := open(t, dir, limit)
		type kept struct {
			ref    Ref
			record string
		}
		var model []kept
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var records [][]byte
				for range rapid.IntRange(1, 5).Draw(rt, "records") {
					length := rapid.IntRange(1, 40<<10).Draw(rt, "length")
					records = append(records, bytes.Repeat([]byte{byte(length)}, length))
				}
				refs, err := appendTo(l, records)
				if errors.Is(err, ErrFull) {
					if l.Used() < limit/8 {
						rt.Fatalf("full with %d of %d bytes", l.Used(), int64(limit))
					}
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				for i, ref := range refs {
					model = append(model, kept{ref, string(records[i])})
				}
			},
			"done": func(rt *rapid.T) {
				if len(model) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(model)-1).Draw(rt, "which")
				l.Done(model[i].ref)
				model = slices.Delete(model, i, i+1)
			},
			"": func(rt *rapid.T) {
				for _, k := range model {
					record, err := l.Read(k.ref)
					if err != nil || string(record) != k.record {
						rt.Fatalf("read %v: %v, %d bytes, want %d", k.ref, err, len(record), len(k.record))
					}
				}
				if len(model) == 0 && l.Used() != 0 {
					rt.Fatalf("%d bytes used by nothing", l.Used())
				}
			},
		})
		closeLog(t, l)
		l, found := open(t, dir, limit)
		defer closeLog(t, l)
		// Records that were done may come again with those beside them, none may miss.
		i := 0
		for _, record := range found {
			if i < len(model) && record == model[i].record {
				i++
			}
		}
		if i != len(model) {
			rt.Errorf("of %d records %d were found again in order", len(model), i)
		}
	})
}

// A crash leaves a torn entry at the end; what lies before it is whole.
func TestTornTail(t *testing.T) {
	t.Parallel()
	records := [][]byte{[]byte("first"), []byte("second"), []byte("third")}
	for _, cut := range []int{1, headerBytes, headerBytes + 4} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, _ := open(t, dir, 1<<20)
			if _, err := appendTo(l, records); err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
			path := l.path(1)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			last := len(content) - headerBytes - len("third")
			if err := os.WriteFile(path, content[:last+cut], 0o600); err != nil {
				t.Fatal(err)
			}
			l, found := open(t, dir, 1<<20)
			defer closeLog(t, l)
			if !slices.Equal(found, []string{"first", "second"}) || l.Damaged() != int64(cut) {
				t.Errorf("found %q, %d bytes damaged", found, l.Damaged())
			}
		})
	}
}

// A file system may extend a file before its data is on disk: after a power failure its end is zeros.
func TestZerosAtEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, dir, 1<<20)
	if _, err := appendTo(l, [][]byte{[]byte("first")}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	content, err := os.ReadFile(l.path(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.path(1), append(content, make([]byte, 4096)...), 0o600); err != nil {
		t.Fatal(err)
	}
	l, found := open(t, dir, 1<<20)
	defer closeLog(t, l)
	if !slices.Equal(found, []string{"first"}) || l.Damaged() != 4096 {
		t.Errorf("found %q, %d bytes damaged", found, l.Damaged())
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, dir, 1<<20)
	refs, err := appendTo(l, [][]byte{[]byte("first"), []byte("second")})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	content, err := os.ReadFile(l.path(1))
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(l.path(1), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if record, err := l.Read(refs[0]); err != nil || string(record) != "first" {
		t.Errorf("%q %v", record, err)
	}
	if record, err := l.Read(refs[1]); err == nil {
		t.Errorf("read %q of a damaged record", record)
	}
}

func TestOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, dir, 1<<20)
	if _, err := Open(dir, 1<<20, func(Ref, []byte) error { return nil }); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	closeLog(t, l)
	if _, err := appendTo(l, [][]byte{[]byte("x")}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("append to a closed log: %v", err)
	}
	l, _ = open(t, dir, 1<<20)
	closeLog(t, l)
}

func TestMarks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := make(map[string]int64)
	marks := func() (m *Marks, found map[string]int64) {
		found = make(map[string]int64)
		m, err := OpenMarks(dir, func(slot int64, mark []byte) { found[string(mark)] = slot })
		if err != nil {
			t.Fatal(err)
		}
		return m, found
	}
	m, _ := marks()
	for round := range 3 {
		for i := range 100 {
			name := fmt.Sprintf("%d-%d-%s", round, i, bytes.Repeat([]byte{'x'}, i))
			slot, err := m.Set([]byte(name))
			if err != nil {
				t.Fatal(err)
			}
			set[name] = slot
		}
		i := 0
		for name, slot := range set {
			if i++; i%3 > 0 {
				if err := m.Clear(slot); err != nil {
					t.Fatal(err)
				}
				delete(set, name)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		var found map[string]int64
		if m, found = marks(); fmt.Sprint(found) != fmt.Sprint(set) {
			t.Fatalf("round %d: found %v, want %v", round, found, set)
		}
	}
	if _, err := m.Set(make([]byte, MaxMark+1)); err == nil {
		t.Error("a mark too long was set")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	// The file holds no more slots than marks were there at once.
	info, err := os.Stat(filepath.Join(dir, marksName))
	if err != nil || info.Size() > 200*slotBytes {
		t.Errorf("%v, the file has %d slots", err, info.Size()/slotBytes)
	}
}

// Whatever lies in the files, opening hands out no record whose checksum is wrong
// and does not fail.
func FuzzRecover(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00a"), []byte("\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, segment, marks []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{"00000000000000000007" + suffix: segment, marksName: marks} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l, found := open(t, dir, 1<<20)
		defer closeLog(t, l)
		if len(found) == 0 && l.Used() != 0 {
			t.Errorf("%d bytes of no records", l.Used())
		}
		m, err := OpenMarks(dir, func(_ int64, mark []byte) {
			if len(mark) == 0 || len(mark) > MaxMark {
				t.Errorf("a mark of %d bytes", len(mark))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}
