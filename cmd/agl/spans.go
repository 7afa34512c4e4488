package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
)

type spansCommand struct {
	rolloutArg

	Attempt        string `placeholder:"ID" help:"Only this attempt: its id, or latest. Default: all of them."`
	Name           string `help:"Only spans of this name."`
	NameContains   string `placeholder:"TEXT" help:"Only spans with this in their name."`
	Span           string `placeholder:"ID" help:"Only the spans with this id."`
	SpanContains   string `placeholder:"TEXT" help:"Only spans with this in their id."`
	Parent         string `placeholder:"ID" help:"Only the children of this span."`
	ParentContains string `placeholder:"TEXT" help:"Only children of spans with this in their id."`
	Trace          string `placeholder:"ID" help:"Only the spans of this trace."`
	TraceContains  string `placeholder:"TEXT" help:"Only spans with this in their trace's id."`
	Any            bool   `help:"List spans that pass any of these filters instead of all; --attempt always applies."`
	listFlags      `kong:"set='limit=0',set='order= It may come first.'"`
}

// Validate puts the arguments in order.
func (c *spansCommand) Validate() error {
	return errors.Join(c.Order(&c.Rollout, "latest", "rollout"), c.listFlags.Validate())
}

func (c *spansCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	// The query returns no spans for an unknown rollout, as for a new one.
	rollout, err := findRollout(ctx, store, c.Rollout)
	if err != nil {
		return c.Wrap(err)
	}
	if err := checkAttempt(ctx, store, rollout.RolloutID, c.Attempt); err != nil {
		return c.Wrap(err)
	}
	names, page := append(adapter.RewardAttributes(), console.TokenAttributes), pageSize
	if c.JSON {
		names, page = nil, wholeSpans
	}
	return (&listing[agl.Span, *agl.Span]{
		flags:   c.listFlags,
		headers: []string{"SEQ", "ATTEMPT", "SPAN", "PARENT", "NAME", "STATUS", "TOOK", "TOKENS", "REWARD"},
		status:  5,
		drop:    []string{"PARENT", "ATTEMPT", "SPAN", "STATUS", "TOOK"},
		row:     plainRow(spanRow),
		page:    page,
		query: func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
			query := agl.QuerySpansParams{
				RolloutID: rollout.RolloutID, AttemptID: c.Attempt,
				Name: c.Name, NameContains: c.NameContains, SpanID: c.Span, SpanIDContains: c.SpanContains,
				ParentID: c.Parent, ParentIDContains: c.ParentContains, TraceID: c.Trace, TraceIDContains: c.TraceContains,
				AttributeNames: names, Paging: p,
			}
			if c.Any {
				query.Logic = agl.FilterOr
			}
			return store.QuerySpans(ctx, query)
		},
	}).show(ctx, out)
}

func spanRow(s *agl.Span) []string {
	return []string{
		strconv.FormatInt(s.SequenceID, 10), s.AttemptID, console.Dash(s.SpanID), console.Dash(s.ParentID.V), console.Shorten(console.Dash(s.Name)),
		console.Dash(string(s.Status.Code)), console.Took(s.StartTime, s.EndTime, "-"),
		console.Dash(console.SpanTokens(s.Attributes)), console.Dash(console.SpanRewards(s.Attributes)),
	}
}
