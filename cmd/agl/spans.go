package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/agl-go/agl"
)

type spansCommand struct {
	storeFlags
	Rollout        string `arg:"" help:"Id of the rollout."`
	Attempt        string `placeholder:"ID" help:"Only this attempt: its id, or latest. Default: all of them."`
	Name           string `help:"Only spans of this name."`
	NameContains   string `placeholder:"TEXT" help:"Only spans with this in their name."`
	Span           string `placeholder:"ID" help:"Only the spans with this id."`
	SpanContains   string `placeholder:"TEXT" help:"Only spans with this in their id."`
	Parent         string `placeholder:"ID" help:"Only the children of this span."`
	ParentContains string `placeholder:"TEXT" help:"Only children of spans with this in their id."`
	Trace          string `placeholder:"ID" help:"Only the spans of this trace."`
	TraceContains  string `placeholder:"TEXT" help:"Only spans with this in their trace's id."`
	Any            bool   `help:"List spans that pass any of these filters instead of all; --attempt always holds."`
	Limit          int    `default:"0" help:"List at most so many, in the order of sequence ids; 0 is all."`
	JSON           bool   `help:"Print JSON, one span a line, instead of a table."`
}

// Help is shown below the flags.
func (spansCommand) Help() string {
	return "agl trace shows the same spans as a tree.\n\nExample:\n  agl spans ro-b66f639043f4 --name-contains reward --json"
}

// Validate is called by kong.
func (c *spansCommand) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit=%d: must be 0 (all) or more", c.Limit)
	}
	return nil
}

func (c *spansCommand) query(p agl.Paging) agl.QuerySpansParams {
	query := agl.QuerySpansParams{
		RolloutID: c.Rollout, AttemptID: c.Attempt,
		Name: c.Name, NameContains: c.NameContains, SpanID: c.Span, SpanIDContains: c.SpanContains,
		ParentID: c.Parent, ParentIDContains: c.ParentContains, TraceID: c.Trace, TraceIDContains: c.TraceContains,
		Paging: p,
	}
	if c.Any {
		query.Logic = agl.FilterOr
	}
	return query
}

func (c *spansCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	// The spans of a rollout that is not there are none.
	if _, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: c.Rollout}); err != nil {
		return c.errStore(err)
	}
	listing := grid{headers: []string{"SEQ", "ATTEMPT", "SPAN", "PARENT", "NAME", "STATUS", "TOOK", "TOKENS", "REWARD"}, status: 5}
	err = allPages(ctx, c.Limit, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
		return store.QuerySpans(ctx, c.query(p))
	}, func(s *agl.Span) error {
		if c.JSON {
			return m.printJSON(s.AppendJSON(nil))
		}
		listing.rows = append(listing.rows, spanRow(s))
		return nil
	})
	if err != nil || c.JSON {
		return c.errStore(err)
	}
	return listing.print(m)
}

func spanRow(s *agl.Span) []string {
	took := "-"
	if s.StartTime.Valid && s.EndTime.Valid {
		took = seconds(s.EndTime.V.Sub(s.StartTime.V))
	}
	return []string{
		strconv.FormatInt(s.SequenceID, 10), s.AttemptID, orDash(s.SpanID), orDash(s.ParentID.V), shorten(orDash(s.Name)),
		orDash(string(s.Status.Code)), took, orDash(spanTokens(s.Attributes)), orDash(spanRewards(s.Attributes)),
	}
}
