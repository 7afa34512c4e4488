package admission_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/admission"
)

// model is the accounts as a list of every group that there ever was.
type model struct {
	cfg     admission.Config
	version int
	groups  []*modelGroup
	batch   []int // of the step under way
}

type modelGroup struct {
	version int
	status  string // open, ready, trained, dropped
	passed  bool   // a step was made without it while a younger group was in it
}

func (m *model) with(status ...string) (ids []int) {
	for id, g := range m.groups {
		if slices.Contains(status, g.status) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) room() int {
	n := 0
	for n < 1000 {
		position := m.version*m.cfg.Groups + len(m.with("open", "ready")) + n // of the next group in the order of training
		if position >= m.cfg.Steps*m.cfg.Groups || position/m.cfg.Groups > m.version+m.cfg.MaxStaleness {
			break
		}
		if m.cfg.Concurrency > 0 && len(m.with("open"))+n >= m.cfg.Concurrency {
			break
		}
		n++
	}
	return n
}

// TestAccounts runs random traces beside the model, and through checkpoints.
func TestAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := admission.Config{
			Groups: rapid.IntRange(1, 4).Draw(t, "groups"), Steps: rapid.IntRange(1, 12).Draw(t, "steps"),
			MaxStaleness: rapid.IntRange(0, 4).Draw(t, "staleness"), Concurrency: rapid.IntRange(0, 6).Draw(t, "concurrency"),
			OnStale: rapid.SampledFrom(admission.OnStales()).Draw(t, "on_stale"),
		}
		accounts, err := admission.New(cfg, admission.State{})
		if err != nil {
			t.Fatal(err)
		}
		m := &model{cfg: cfg}
		pick := func(t *rapid.T, status ...string) int {
			ids := m.with(status...)
			if len(ids) == 0 {
				t.Skip("no such group")
			}
			return rapid.SampledFrom(ids).Draw(t, "group")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { m.compare(t, accounts) },
			"admit": func(t *rapid.T) {
				if m.room() == 0 {
					t.Skip("no room")
				}
				if g := accounts.Admit(); g != (admission.Group{ID: len(m.groups), Version: m.version}) {
					t.Fatalf("admitted %+v as group %d of version %d", g, len(m.groups), m.version)
				}
				m.groups = append(m.groups, &modelGroup{version: m.version, status: "open"})
			},
			"done": func(t *rapid.T) {
				id := pick(t, "open")
				accounts.Done(id)
				m.groups[id].status = "ready"
			},
			"drop": func(t *rapid.T) {
				id := pick(t, "open", "ready")
				taken := slices.Contains(m.batch, id)
				if accounts.Drop(id, admission.Failed) == taken || accounts.Drop(id, admission.Failed) {
					t.Fatalf("group %d (taken: %t) is not dropped once", id, taken)
				}
				if !taken {
					m.groups[id].status = "dropped"
				}
			},
			"batch": func(t *rapid.T) { m.batchOf(t, accounts) },
			"take":  func(t *rapid.T) { m.take(t, accounts, rapid.IntRange(1, cfg.Groups).Draw(t, "n")) },
			"train": func(t *rapid.T) {
				if len(m.batch) < cfg.Groups {
					t.Skip("no batch")
				}
				m.train(t, accounts)
			},
			"kill": func(t *rapid.T) {
				data, err := json.Marshal(accounts.State())
				if err != nil {
					t.Fatal(err)
				}
				var state admission.State
				if err := json.Unmarshal(data, &state); err != nil {
					t.Fatal(err)
				}
				if accounts, err = admission.New(cfg, state); err != nil {
					t.Fatal(err)
				}
				m.batch = nil
				for _, id := range m.with("open") {
					accounts.Restart(id)
					m.groups[id].version = m.version
				}
				for _, id := range m.with("ready") {
					accounts.Reopen(id)
					m.groups[id].status = "open"
				}
			},
		})
	})
}

// compare checks everything that can be seen.
func (m *model) compare(t *rapid.T, accounts *admission.Accounts) {
	s := accounts.State()
	ids := func(groups []admission.Group) (ids []int) {
		for _, g := range groups {
			ids = append(ids, g.ID)
			if g.Version != m.groups[g.ID].version {
				t.Fatalf("group %d has version %d, want %d", g.ID, g.Version, m.groups[g.ID].version)
			}
		}
		return ids
	}
	if !slices.Equal(ids(s.Ready), m.with("ready")) || !slices.Equal(ids(s.Open), m.with("open")) {
		t.Fatalf("state %+v: ready and open are %v and %v", s, m.with("ready"), m.with("open"))
	}
	dropped := 0
	for _, n := range s.Dropped {
		dropped += n
	}
	if s.Version != m.version || s.Consumed != len(m.with("trained")) || s.Admitted != len(m.groups) || dropped != len(m.with("dropped")) {
		t.Fatalf("state %+v does not count as the model does", s)
	}
	if got, want := accounts.Room(), m.room(); got != want {
		t.Fatalf("room for %d, want %d", got, want)
	}
}

// take gives the step n more groups.
func (m *model) take(t *rapid.T, accounts *admission.Accounts, n int) {
	var ready, ids []int
	for _, id := range m.with("ready") {
		if !slices.Contains(m.batch, id) {
			ready = append(ready, id)
		}
	}
	for _, g := range accounts.Take(n) {
		ids = append(ids, g.ID)
		// Whoever was never overtaken is trained on in time.
		if age := m.version - g.Version; age > m.cfg.MaxStaleness && (!m.groups[g.ID].passed || m.cfg.OnStale != admission.Train) {
			t.Fatalf("group %d is trained on at age %d, and was never late", g.ID, age)
		}
	}
	room := m.cfg.Groups - len(m.batch)
	for _, id := range m.with("open") {
		if m.cfg.OnStale == admission.Wait && m.groups[id].version+m.cfg.MaxStaleness <= m.version {
			room--
		}
	}
	if len(ready) < n || room < n {
		if ids != nil {
			t.Fatalf("took %v from the ready %v, of which %d could be taken", ids, ready, room)
		}
		return
	}
	if !slices.Equal(ids, ready[:n]) {
		t.Fatalf("took %v, not the %d oldest of %v", ids, n, ready)
	}
	m.batch = append(m.batch, ids...)
}

// batchOf completes the batch of the step, or looks at it: it stays the same.
func (m *model) batchOf(t *rapid.T, accounts *admission.Accounts) {
	if missing := m.cfg.Groups - len(m.batch); missing > 0 {
		m.take(t, accounts, missing)
	}
	var ids, want []int
	for _, g := range accounts.Batch() {
		ids = append(ids, g.ID)
	}
	if len(m.batch) == m.cfg.Groups {
		want = m.batch
	}
	if !slices.Equal(ids, want) {
		t.Fatalf("the batch is %v, want %v", ids, want)
	}
}

// train ends the step under way.
func (m *model) train(t *rapid.T, accounts *admission.Accounts) {
	last := slices.Max(m.batch)
	for _, id := range m.batch {
		m.groups[id].status = "trained"
	}
	m.batch = nil
	for _, id := range m.with("open", "ready") {
		m.groups[id].passed = m.groups[id].passed || id < last
	}
	stale := accounts.Trained()
	m.version++
	var want []int
	for _, status := range []string{"ready", "open"} {
		for _, id := range m.with(status) {
			if g := m.groups[id]; m.cfg.OnStale == admission.Drop && m.version-g.version > m.cfg.MaxStaleness {
				g.status = "dropped"
				want = append(want, id)
			}
		}
	}
	var got []int
	for _, g := range stale {
		got = append(got, g.ID)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("dropped %v, want %v", got, want)
	}
}

// TestSynchronousTrace: without staleness, a step is sampled when the one before is trained, and not earlier.
func TestSynchronousTrace(t *testing.T) {
	t.Parallel()
	accounts, err := admission.New(admission.Config{Groups: 3, Steps: 4}, admission.Synchronous(1, 3))
	if err != nil {
		t.Fatal(err)
	}
	for step := 1; step < 4; step++ {
		if room := accounts.Room(); room != 3 {
			t.Fatalf("room for %d before step %d, want 3", room, step)
		}
		var ids []int
		for accounts.Room() > 0 {
			ids = append(ids, accounts.Admit().ID)
		}
		for _, id := range slices.Backward(ids) {
			if accounts.Batch() != nil || accounts.Room() != 0 {
				t.Fatalf("a batch, or room, before all are done")
			}
			accounts.Done(id)
		}
		want := []admission.Group{{ID: 3 * step, Version: step}, {ID: 3*step + 1, Version: step}, {ID: 3*step + 2, Version: step}}
		if diff := cmp.Diff(want, accounts.Batch()); diff != "" {
			t.Fatal(diff)
		}
		accounts.Trained()
	}
	if accounts.Room() != 0 {
		t.Error("there is room after the last step")
	}
}

// TestOlderGroupDuringStep: an older group that becomes ready while a step trains on younger ones is in the next step, not lost with
// this one.
func TestOlderGroupDuringStep(t *testing.T) {
	t.Parallel()
	accounts, err := admission.New(admission.Config{Groups: 1, Steps: 2, MaxStaleness: 1}, admission.State{})
	if err != nil {
		t.Fatal(err)
	}
	slow, fast := accounts.Admit(), accounts.Admit()
	accounts.Done(fast.ID)
	first := accounts.Batch()
	accounts.Done(slow.ID)
	if diff := cmp.Diff(first, accounts.Batch()); diff != "" || first[0] != fast {
		t.Errorf("the batch is %v, and changed:\n%s", first, diff)
	}
	accounts.Trained()
	if next := accounts.Batch(); len(next) != 1 || next[0] != slow {
		t.Errorf("the next batch is %v, want the slow group", next)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := admission.Config{Groups: 2, Steps: 3}
	for name, test := range map[string]struct {
		cfg   admission.Config
		state admission.State
	}{
		"no groups":     {admission.Config{Steps: 1}, admission.State{}},
		"no steps":      {admission.Config{Groups: 1}, admission.State{}},
		"staleness":     {admission.Config{Groups: 1, Steps: 1, MaxStaleness: -1}, admission.State{}},
		"other groups":  {good, admission.Synchronous(1, 3)},
		"lost a group":  {good, admission.State{Admitted: 1}},
		"twice":         {good, admission.State{Admitted: 2, Ready: []admission.Group{{ID: 1}}, Open: []admission.Group{{ID: 1}}}},
		"on stale":      {admission.Config{Groups: 1, Steps: 1, OnStale: "keep"}, admission.State{}},
		"of the future": {good, admission.State{Admitted: 1, Open: []admission.Group{{Version: 1}}}},
		"a reason":      {good, admission.State{Admitted: 1, Dropped: map[admission.Reason]int{"bored": 1}}},
	} {
		if _, err := admission.New(test.cfg, test.state); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

// TestNoBoundOnStaleness: the largest MaxStaleness admits all groups of the run at once.
func TestNoBoundOnStaleness(t *testing.T) {
	t.Parallel()
	for _, bound := range []int{4, math.MaxInt} {
		accounts, err := admission.New(admission.Config{Groups: 3, Steps: 4, MaxStaleness: bound}, admission.Synchronous(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		if room := accounts.Room(); room != 9 {
			t.Errorf("MaxStaleness %d: room for %d groups before step 2 of 4, want 9", bound, room)
		}
	}
}
