package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/admission"
)

// savedGroup is a live group in a checkpoint.
type savedGroup struct {
	ID    int            `json:"id"`
	Task  jsontext.Value `json:"task"`
	Index int            `json:"index"`
	// Rollouts of a group that was ready. An open group starts again: its rollouts may have been answered by weights that were lost.
	Rollouts []string `json:"rollouts,omitzero"`
}

// savedPump is what a checkpoint holds beside the source, unless the run is synchronous and nothing was dropped.
type savedPump struct {
	Accounts admission.State `json:"accounts"`
	Groups   []savedGroup    `json:"groups,omitzero"`
	// Versions are those that answered the calls of ready Groups, with their generations.
	Versions map[string]int `json:"versions,omitzero"`
}

// reread reads the groups of a checkpoint whose rollouts have all finished, and returns the others.
func (p *pump) reread(ctx context.Context, groups []*liveGroup) (restart []*liveGroup, err error) {
	for _, g := range groups {
		complete := false
		if len(g.ids) > 0 {
			page, err := p.store.QueryRollouts(ctx, agl.QueryRolloutsParams{
				RolloutIDIn: g.ids, StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed, agl.RolloutCancelled},
			})
			if err != nil {
				return nil, fmt.Errorf("read rollouts of the checkpoint: %w", err)
			}
			complete = len(page.Items) == len(g.ids)
		}
		if complete {
			p.work(func() { p.await(ctx, g) })
			continue
		}
		p.mu.Lock()
		p.accounts.Restart(g.ID)
		g.Version, g.ids, g.over = p.accounts.State().Version, nil, false
		p.mu.Unlock()
		restart = append(restart, g)
	}
	return restart, nil
}

// save returns the position of the source, and the accounts unless they are those of a synchronous run.
func (p *pump) save() (position jsontext.Value, saved *savedPump, err error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	saved, news := p.saveGroups()
	p.tell(news)
	if position, err = p.collector.source.State(); err != nil {
		return nil, nil, fmt.Errorf("position in the tasks: %w", err)
	}
	return position, saved, nil
}

// saveGroups returns the accounts, and those of their groups that the source has not heard of.
func (p *pump) saveGroups() (saved *savedPump, news []heard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.heard = p.heard, nil
	state := p.accounts.State()
	if state.Admitted == state.Consumed {
		return nil, news
	}
	saved = &savedPump{Accounts: state}
	all := slices.Concat(state.Ready, state.Open)
	slices.SortFunc(all, func(a, b admission.Group) int { return a.ID - b.ID })
	saved.Versions = map[string]int{}
	for _, g := range all {
		live := p.live[g.ID]
		one := savedGroup{ID: g.ID, Task: live.task.Input, Index: live.task.Index}
		switch {
		case live.samples != nil:
			one.Rollouts = live.ids
			p.noteVersions(saved.Versions, live.samples)
		case live.over: // not read yet
			one.Rollouts = live.ids
			maps.Copy(saved.Versions, p.versions)
		}
		saved.Groups = append(saved.Groups, one)
	}
	return saved, news
}

// noteVersions adds the versions that answered the calls of a group.
func (p *pump) noteVersions(to map[string]int, g taskGroup) {
	for k, role := range p.collector.roles {
		for _, s := range g.of(k) {
			for _, t := range s.sequences {
				for _, version := range t.Versions() {
					if generation, ok := role.calls.Generation(version); ok {
						to[version] = generation
					}
				}
			}
		}
	}
}
