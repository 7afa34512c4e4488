package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/rest/client"
)

// comparison is one call on something large and the same on something small.
type comparison struct {
	name         string
	large, small time.Duration // medians
}

func (c comparison) ratio() float64 { return float64(c.large) / float64(c.small) }

const (
	// claimLimit is how many rollouts the compared claim takes.
	claimLimit = 512
	// pageLimit is the length of the compared pages.
	pageLimit = 100
	// comparisons is how often each call is made, the large and the small one in turn.
	comparisons = 25
)

// The names of the comparisons.
const (
	nameClaims        = "claims"
	nameClaimSQLite   = "claim-sqlite"
	nameClaimPostgres = "claim-postgres"
	nameOffsets       = "offsets"
)

func compare(ctx context.Context, opt options, dir string) (all []comparison, err error) {
	if opt.picked(nameClaims) {
		for _, db := range []struct {
			name  string
			start func() (*server, error)
		}{
			{nameClaimSQLite, func() (*server, error) { return startSQLite(ctx, opt, dir, "full") }},
			{nameClaimPostgres, func() (*server, error) { return startPostgres(ctx, opt, 1) }},
		} {
			c, err := compareClaims(ctx, opt, db.name, db.start)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", db.name, err)
			}
			all = append(all, c)
		}
	}
	if opt.picked(nameOffsets) {
		offsets, err := compareOffsets(ctx, opt, dir)
		if err != nil {
			return nil, fmt.Errorf("offsets: %w", err)
		}
		all = append(all, offsets...)
	}
	for _, c := range all {
		fmt.Fprintf(os.Stdout, "%-28s %10s / %10s = %.2f\n", c.name, c.large.Round(time.Microsecond), c.small.Round(time.Microsecond), c.ratio())
	}
	return all, nil
}

// side is one of two calls that are compared. before, if not nil, runs before each call and is not timed.
type side struct{ call, before func() error }

// alternate times two calls in turn and returns the medians.
func alternate(ctx context.Context, large, small side) (c comparison, err error) {
	var times [2][]time.Duration
	for range comparisons {
		for i, one := range []side{large, small} {
			if one.before != nil {
				if err := one.before(); err != nil {
					return c, err
				}
			}
			began := time.Now()
			if err := errors.Join(one.call(), ctx.Err()); err != nil {
				return c, err
			}
			times[i] = append(times[i], time.Since(began))
		}
	}
	c.large, c.small = bench.Median(times[0]), bench.Median(times[1])
	return c, nil
}

// compareClaims claims from a long queue and from one of a hundredth.
func compareClaims(ctx context.Context, opt options, name string, start func() (*server, error)) (comparison, error) {
	var sides []side
	for _, length := range []int{opt.Queue, max(opt.Queue/100, 2*claimLimit)} {
		srv, err := start()
		if err != nil {
			return comparison{}, err
		}
		defer srv.stop()
		client, err := client.New(client.Config{URL: srv.urls[0]})
		if err != nil {
			return comparison{}, err
		}
		defer client.Close()
		enqueue := func(n int) error {
			for ; n > 0; n -= 1000 {
				if _, err := client.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: tasks(min(n, 1000))}); err != nil {
					return err
				}
			}
			return nil
		}
		if err := enqueue(length); err != nil {
			return comparison{}, err
		}
		claim := func() error {
			taken, err := client.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: claimLimit})
			if err == nil && len(taken.Rollouts) != claimLimit {
				err = fmt.Errorf("got %d rollouts, want %d", len(taken.Rollouts), claimLimit)
			}
			return err
		}
		sides = append(sides, side{claim, func() error { return enqueue(claimLimit) }})
	}
	c, err := alternate(ctx, sides[0], sides[1])
	c.name = fmt.Sprintf("%s of %d", name, opt.Queue)
	return c, err
}

// compareOffsets reads pages at a large offset and at none, of one rollout's spans and of all rollouts.
func compareOffsets(ctx context.Context, opt options, dir string) ([]comparison, error) {
	path, deep, err := largeDatabase(ctx, opt, dir)
	if err != nil {
		return nil, err
	}
	srv, err := startAgl(ctx, opt, "--db", "sqlite:"+path)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	client, err := client.New(client.Config{URL: srv.urls[0]})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	far := opt.Spans / 10
	full := func(got int, err error) error {
		if err == nil && got != pageLimit {
			err = fmt.Errorf("a page of %d, want %d", got, pageLimit)
		}
		return err
	}
	spans := func(offset int) func() error {
		return func() error {
			page, err := client.QuerySpansJSON(ctx, agl.QuerySpansParams{
				RolloutID: deep, Paging: agl.Paging{Limit: pageLimit, Offset: offset, SortBy: "sequence_id"},
			})
			return full(len(page.Items), err)
		}
	}
	rollouts := func(offset int) func() error {
		return func() error {
			page, err := client.QueryRollouts(ctx, agl.QueryRolloutsParams{Paging: agl.Paging{Limit: pageLimit, Offset: offset, SortBy: "start_time"}})
			return full(len(page.Items), err)
		}
	}
	var all []comparison
	for _, one := range []struct {
		name string
		call func(offset int) func() error
	}{{"spans", spans}, {"rollouts", rollouts}} {
		c, err := alternate(ctx, side{call: one.call(far)}, side{call: one.call(0)})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		c.name = fmt.Sprintf("%s at offset %d", one.name, far)
		all = append(all, c)
	}
	return all, nil
}
