package grpo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/background"
)

// pump runs the rollouts of a run, ahead of training by as much as its accounts admit. Without staleness it starts those of a
// step when collect asks for them.
type pump struct {
	cfg       Config
	collector collector
	store     agl.Store
	flusher   algorithm.Flusher

	stop    context.CancelFunc
	workers sync.WaitGroup
	wake    chan struct{} // of run: there may be room
	arrived chan struct{} // of collect: a group is ready, or run has failed

	taken []taskGroup // groups of the step under way; only collect uses these three
	began time.Time   // of the step
	shown int         // number of groups in taken that Progress.OnRollouts has been called for

	opening sync.Mutex // held while tasks are taken from the source

	mu          sync.Mutex
	accounts    *admission.Accounts
	live        map[int]*liveGroup // ready and open, by id
	restored    []*liveGroup       // of the checkpoint, by id, until run takes them
	versions    map[string]int     // of the checkpoint
	admits      bool               // groups may start
	resources   string             // that new rollouts get
	err         error              // that ended run
	dropped     map[admission.Reason]int
	unused      int // tokens in dropped groups, and of stopped rollouts, since the batch before
	stopped     int // rollouts since the batch before
	refilled    int // groups dropped for their rewards since the batch before
	failedInRow int // groups
	heard       []heard
	lastBatch   time.Time
}

// liveGroup is a group that is open or ready.
type liveGroup struct {
	admission.Group

	task    Task
	ids     []string  // of its rollouts; nil before they are enqueued
	pinned  string    // the resources of its rollouts, if this process enqueues them
	over    bool      // all rollouts had finished when the checkpoint was made that the run resumes from
	samples taskGroup // of a ready group
}

// heard is a group whose result the source has not heard.
type heard struct {
	id      int
	task    Task
	rewards []float64
}

const (
	// maxRefills is how many times the groups of a step may be dropped for equal rewards; then they are trained on as they are.
	maxRefills = 10
	// maxFailures is how many times the groups of a step may fail in a row before the run ends.
	maxFailures = 3
	// failurePause is how long each group rests that fails after those of a step have.
	failurePause = 30 * time.Second
)

func (p *pump) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	background.Wake(p.arrived)
}

// news returns the groups that the source has not heard of.
func (p *pump) news() []heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.heard
	p.heard = nil
	return news
}

// tell tells the source of groups. The caller holds opening.
func (p *pump) tell(news []heard) {
	slices.SortFunc(news, func(a, b heard) int { return a.id - b.id })
	if listener, ok := p.collector.source.(Listener); ok {
		for _, n := range news {
			listener.Heard(n.task, n.rewards)
		}
	}
}

// pinned returns the resources of the rollouts of open groups.
func (p *pump) pinned() (resources []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.live {
		if g.samples == nil && g.pinned != "" && !slices.Contains(resources, g.pinned) {
			resources = append(resources, g.pinned)
		}
	}
	return resources
}

func idsOf(rollouts []agl.Rollout) []string {
	ids := make([]string, len(rollouts))
	for i, r := range rollouts {
		ids[i] = r.RolloutID
	}
	return ids
}
