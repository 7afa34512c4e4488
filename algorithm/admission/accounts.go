// Package admission keeps the accounts of training that samples ahead: which groups of rollouts may start, which are trained
// on, and which are dropped, and why.
//
// A group is admitted only if, counting all groups before it, it will be trained on within MaxStaleness versions. So no group is
// sampled that would then be too old to use. With MaxStaleness 0 the accounts are those of a run that samples, trains, and
// samples again.
//
//	a, err := admission.New(admission.Config{Groups: 16, Steps: 100, MaxStaleness: 1}, admission.State{})
//	for range a.Room() {
//		g := a.Admit()            // start its rollouts; a.Done(g.ID) when they have finished
//	}
//	if batch := a.Batch(); batch != nil {
//		stale := a.Trained()      // after a step on the batch; the next groups get its weights
//	}
//
// [Accounts] is pure: it knows no clock, store or engine, and starts no goroutine.
package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/agl-go/agl"
)

// Config configures [New].
type Config struct {
	// Groups is the number of groups that are trained on in a step, at least 1.
	Groups int
	// Steps is the number of steps of the run, at least 1. No more groups are admitted than these steps need.
	Steps int
	// MaxStaleness is how many versions sampling may run ahead of training: 0 is the synchronous run.
	MaxStaleness int
	// Concurrency is the number of groups that may be open at once; zero means as many as MaxStaleness allows.
	Concurrency int
	// OnStale is what happens to groups that take so long that others are trained on before them; empty means Train.
	OnStale OnStale
}

// OnStale is what happens to groups that took so long that they would be older than MaxStaleness when they are trained on.
type OnStale string

// The choices.
const (
	// Train trains on them when they are ready, at whatever age. Training does not wait for them.
	Train OnStale = "train"
	// Wait makes training wait for them, so that no group is older than MaxStaleness.
	Wait OnStale = "wait"
	// Drop drops them and admits others in their place. Tasks that take long are then seldom trained on.
	Drop OnStale = "drop"
)

// OnStales returns all choices.
func OnStales() []OnStale { return []OnStale{Train, Wait, Drop} }

// Reason is why a group was dropped.
type Reason string

// The reasons.
const (
	// Stale groups were older than MaxStaleness when they could have been trained on.
	Stale Reason = "stale"
	// NoVariance groups had equal rewards.
	NoVariance Reason = "no_variance"
	// Failed groups had too few rollouts that count.
	Failed Reason = "failed"
)

// reasons returns all reasons.
func reasons() []Reason { return []Reason{Stale, NoVariance, Failed} }

// Group is a group of rollouts of one task.
type Group struct {
	// ID counts the groups of a run from 0, in the order in which they were admitted.
	ID int `json:"id"`
	// Version is the number of steps that were done when the group was admitted, or started again.
	Version int `json:"version"`
}

// State is the part of the accounts that a checkpoint holds.
type State struct {
	// Version is the number of steps done.
	Version int `json:"version"`
	// Admitted counts all groups: those that were trained on, that are ready or open, and that were dropped.
	Admitted int            `json:"admitted"`
	Consumed int            `json:"consumed"` // Version · Groups
	Dropped  map[Reason]int `json:"dropped,omitzero"`
	// Ready groups are complete, Open ones are not. Both are sorted by ID.
	Ready []Group `json:"ready,omitzero"`
	Open  []Group `json:"open,omitzero"`
}

// Synchronous returns the state of a synchronous run after a number of steps, each of so many
// groups.
func Synchronous(steps, groups int) State {
	return State{Version: steps, Admitted: steps * groups, Consumed: steps * groups}
}

// Accounts are the accounts of one run. They are not safe for concurrent use.
type Accounts struct {
	cfg   Config
	state State
	batch []Group // what the step under way has taken
}

// New opens the accounts. A state that contradicts itself or the Config is agl.ErrInvalid.
func New(cfg Config, state State) (*Accounts, error) {
	for _, f := range []struct {
		name         string
		value, least int
	}{
		{"Groups", cfg.Groups, 1}, {"Steps", cfg.Steps, 1}, {"MaxStaleness", cfg.MaxStaleness, 0}, {"Concurrency", cfg.Concurrency, 0},
	} {
		if f.value < f.least {
			return nil, agl.Errorf(agl.CodeInvalid, "admission: %s is %d, must be at least %d", f.name, f.value, f.least)
		}
	}
	if cfg.OnStale = cmp.Or(cfg.OnStale, Train); !slices.Contains(OnStales(), cfg.OnStale) {
		return nil, agl.Errorf(agl.CodeInvalid, "admission: OnStale is %q; allowed are %q", cfg.OnStale, OnStales())
	}
	a := &Accounts{cfg: cfg, state: clone(state)}
	if err := a.check(); err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "admission: %w", err)
	}
	return a, nil
}

// check reports the first rule that the state breaks.
func (a *Accounts) check() error {
	s := &a.state
	dropped := 0
	for reason, n := range s.Dropped {
		if n < 0 || !slices.Contains(reasons(), reason) {
			return fmt.Errorf("dropped: %d groups as %q; allowed are counts of %q", n, reason, reasons())
		}
		dropped += n
	}
	if s.Version < 0 || s.Consumed != s.Version*a.cfg.Groups {
		return fmt.Errorf("%d groups are consumed after %d steps of %d groups", s.Consumed, s.Version, a.cfg.Groups)
	}
	if live := len(s.Ready) + len(s.Open); s.Admitted != s.Consumed+live+dropped {
		return fmt.Errorf("%d groups are admitted, but %d consumed, %d live and %d dropped", s.Admitted, s.Consumed, live, dropped)
	}
	seen := map[int]bool{}
	for _, list := range [][]Group{s.Ready, s.Open} {
		for i, g := range list {
			if g.ID < 0 || g.ID >= s.Admitted || seen[g.ID] || i > 0 && list[i-1].ID > g.ID || g.Version < 0 || g.Version > s.Version {
				return fmt.Errorf("group %d of version %d is out of range, out of order or given twice", g.ID, g.Version)
			}
			seen[g.ID] = true
		}
	}
	return nil
}

// State returns a copy of the state.
func (a *Accounts) State() State { return clone(a.state) }

func clone(s State) State {
	s.Dropped, s.Ready, s.Open = maps.Clone(s.Dropped), slices.Clone(s.Ready), slices.Clone(s.Open)
	return s
}

// Room is the number of groups that may start now.
func (a *Accounts) Room() int {
	s, c := &a.state, a.cfg
	ahead := (1+min(c.MaxStaleness, c.Steps-s.Version-1))*c.Groups - len(s.Ready) - len(s.Open) // MaxStaleness may be any number
	if c.Concurrency > 0 {
		ahead = min(ahead, c.Concurrency-len(s.Open))
	}
	return max(ahead, 0)
}

// Admit opens the next group. There must be room.
func (a *Accounts) Admit() Group {
	if a.Room() == 0 {
		panic("admission: there is no room for a group")
	}
	s := &a.state
	g := Group{ID: s.Admitted, Version: s.Version}
	s.Admitted++
	s.Open = append(s.Open, g)
	return g
}

// Done makes an open group ready. It returns false if the group is not open, because it was dropped.
func (a *Accounts) Done(id int) bool {
	g, ok := take(&a.state.Open, id)
	if ok {
		at, _ := slices.BinarySearchFunc(a.state.Ready, g, byID)
		a.state.Ready = slices.Insert(a.state.Ready, at, g)
	}
	return ok
}

// Drop drops an open or ready group, which makes room for another. It returns false if there is no such group, or if the step under way
// has taken it.
func (a *Accounts) Drop(id int, reason Reason) bool {
	if slices.ContainsFunc(a.batch, func(g Group) bool { return g.ID == id }) {
		return false
	}
	_, ok := take(&a.state.Open, id)
	if !ok {
		_, ok = take(&a.state.Ready, id)
	}
	if ok {
		if a.state.Dropped == nil {
			a.state.Dropped = map[Reason]int{}
		}
		a.state.Dropped[reason]++
	}
	return ok
}

// Take gives the step under way n more groups: the oldest ready ones. It returns nil if too few are ready, or if training waits for an
// open one. They stay ready until Trained.
func (a *Accounts) Take(n int) []Group {
	free, late := a.cfg.Groups-len(a.batch), 0
	if a.cfg.OnStale == Wait { // these must be in this step
		for _, g := range a.state.Open {
			if a.state.Version+1-g.Version > a.cfg.MaxStaleness {
				late++
			}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(a.state.Ready), func(g Group) bool { return slices.Contains(a.batch, g) })
	if n < 1 || n > free-late || n > len(rest) {
		return nil
	}
	a.batch = append(a.batch, rest[:n]...)
	return rest[:n:n]
}

// Batch returns all groups of the step under way. If it has not taken as many as a step needs, it takes the others; it returns nil if
// [Accounts.Take] does.
func (a *Accounts) Batch() []Group {
	if missing := a.cfg.Groups - len(a.batch); missing > 0 && a.Take(missing) == nil {
		return nil
	}
	return slices.Clone(a.batch)
}

// Trained ends the step that trained on [Accounts.Batch], which must be complete. With Drop it drops, and returns, the groups that are
// now too old.
func (a *Accounts) Trained() (stale []Group) {
	s := &a.state
	if len(a.batch) < a.cfg.Groups {
		panic("admission: there is no batch to train on")
	}
	for _, g := range a.batch {
		take(&s.Ready, g.ID)
	}
	a.batch = nil
	s.Consumed += a.cfg.Groups
	s.Version++
	if a.cfg.OnStale != Drop {
		return nil
	}
	for _, g := range slices.Concat(s.Ready, s.Open) {
		if s.Version-g.Version > a.cfg.MaxStaleness && a.Drop(g.ID, Stale) {
			stale = append(stale, g)
		}
	}
	return stale
}

// Restart reopens a group that was open or ready when its process died. Its rollouts are sampled
// anew.
func (a *Accounts) Restart(id int) {
	g, ok := take(&a.state.Ready, id)
	if !ok {
		if g, ok = take(&a.state.Open, id); !ok {
			return
		}
	}
	g.Version = a.state.Version
	a.open(g)
}

// Reopen opens a ready group whose rollouts are being read again; it keeps its version.
func (a *Accounts) Reopen(id int) {
	if g, ok := take(&a.state.Ready, id); ok {
		a.open(g)
	}
}

func (a *Accounts) open(g Group) {
	at, _ := slices.BinarySearchFunc(a.state.Open, g, byID)
	a.state.Open = slices.Insert(a.state.Open, at, g)
}

func byID(a, b Group) int { return cmp.Compare(a.ID, b.ID) }

// take removes a group from a list.
func take(list *[]Group, id int) (Group, bool) {
	i, ok := slices.BinarySearchFunc(*list, Group{ID: id}, byID)
	if !ok {
		return Group{}, false
	}
	g := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return g, true
}
