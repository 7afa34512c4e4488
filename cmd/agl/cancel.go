package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
)

type cancelCommand struct {
	flags.Store

	Rollouts []string `arg:"" name:"rollout" help:"Ids of the rollouts."`
	JSON     bool     `help:"Print JSON, one rollout a line."`
}

func (c *cancelCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	var failed []error
	for _, id := range c.Rollouts {
		r, err := store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: id})
		switch {
		case errors.Is(err, agl.ErrNotFound):
			failed = append(failed, c.Wrap(err))
			continue
		case err != nil:
			return errors.Join(append(failed, c.Wrap(err))...)
		case c.JSON:
			err = out.JSON(&r)
		default:
			err = out.Printf("%s  %s\n", r.RolloutID, r.Status)
		}
		if err != nil {
			return err
		}
		// A worker may have finished it first.
		if r.Status != agl.RolloutCancelled {
			failed = append(failed, fmt.Errorf("%s had already finished: it is %s", r.RolloutID, r.Status))
		}
	}
	return errors.Join(failed...)
}
