package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/proxy/session"
)

type forgetCommand struct {
	flags.Store

	User   string   `required:"" placeholder:"NAME" help:"Whose sessions: the text of X-Agl-User."`
	Run    []string `placeholder:"DIR" type:"existingdir" help:"Say which snapshots of this run have learned from them; repeat it."`
	DryRun bool     `help:"Only show what would be deleted."`
}

func (c *forgetCommand) Validate() error {
	if c.User == "" || len(c.User) > session.MaxUser {
		return fmt.Errorf("--user=%.20q: must have 1 to %d bytes", c.User, session.MaxUser)
	}
	return nil
}

func (c *forgetCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	sessions, err := c.sessions(ctx, store)
	if err != nil {
		return err
	}
	table := console.Table{Headers: []string{"RUN", "STEPS", "SESSIONS", "FIRST SNAPSHOT"}}
	for _, dir := range c.Run { // before anything is deleted: the list is made from the sessions that exist
		seen, err := learnedFrom(dir, sessions)
		if err != nil {
			return err
		}
		if seen.sessions > 0 {
			table.Rows = append(table.Rows, []string{dir, fmt.Sprintf("%d to %d", seen.first, seen.last), strconv.Itoa(seen.sessions), "that of step " + strconv.Itoa(seen.first)})
		}
	}
	if len(table.Rows) > 0 {
		if err := table.Print(out); err != nil {
			return err
		}
	}
	if c.DryRun {
		return out.Summarize("%s of %s would be deleted", console.Count(len(sessions), "session"), c.User)
	}
	if err := forgetAll(ctx, store, sessions); err != nil {
		return c.Wrap(err)
	}
	return out.Summarize("deleted %s of %s", console.Count(len(sessions), "session"), c.User)
}

// sessions returns the user's sessions with their states.
func (c *forgetCommand) sessions(ctx context.Context, store agl.Store) (map[string]agl.RolloutStatus, error) {
	found := map[string]agl.RolloutStatus{}
	params := agl.QueryRolloutsParams{Labels: []agl.Label{{Name: session.MetadataUser, Value: c.User}}}
	for r, err := range agl.Pages(ctx, agl.Paging{}, pageSize, func(ctx context.Context, page agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		params.Paging = page
		return store.QueryRollouts(ctx, params)
	}) {
		if err != nil {
			return nil, c.Wrap(err)
		}
		found[r.RolloutID] = r.Status
	}
	return found, nil
}

// forgetting is how many sessions are deleted at once. The store commits what comes together in one transaction.
const forgetting = 64

// forgetAll deletes sessions. After a kill, running the command again deletes the rest: each session is deleted together with all
// that belongs to it.
func forgetAll(ctx context.Context, store agl.Store, sessions map[string]agl.RolloutStatus) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(forgetting)
	for id, status := range sessions {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := forget(ctx, store, id, status); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// forget deletes a rollout. One that is gone already is forgotten.
func forget(ctx context.Context, store agl.Store, id string, status agl.RolloutStatus) error {
	if !status.Finished() {
		if _, err := store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: id}); err != nil && !errors.Is(err, agl.ErrNotFound) {
			return err
		}
	}
	if err := store.DeleteRollout(ctx, agl.DeleteRolloutParams{RolloutID: id}); err != nil && !errors.Is(err, agl.ErrNotFound) {
		return err
	}
	return nil
}

// learned says which steps of a run have learned from some sessions.
type learned struct{ first, last, sessions int }

// learnedFrom reads the metrics of a run.
func learnedFrom(dir string, sessions map[string]agl.RolloutStatus) (seen learned, err error) {
	file, err := os.Open(filepath.Join(dir, "metrics.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return seen, fmt.Errorf("--run=%s: it has no metrics.jsonl, so it is not the folder of a run that has learned", dir)
	}
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewReader(file)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what comes without a newline is still being written
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
		var step struct {
			Step     int      `json:"step"`
			Learned  []string `json:"learned"`
			Replayed []string `json:"replayed"` // after they were learned from
		}
		if err := json.Unmarshal(line, &step); err != nil {
			return seen, fmt.Errorf("%s, line %d: %w", file.Name(), n, err)
		}
		for _, id := range step.Learned {
			if _, ok := sessions[id]; !ok {
				continue
			}
			if seen.sessions++; seen.first == 0 {
				seen.first = step.Step
			}
			seen.last = step.Step
		}
		for _, id := range step.Replayed {
			if _, ok := sessions[id]; ok {
				seen.last = step.Step
			}
		}
	}
}
