package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

type exportCommand struct {
	storeFlags
	File    string          `arg:"" help:"The new file, or - for standard output."`
	What    string          `required:"" enum:"triplets,trajectories,messages" help:"What to make of the spans: triplets, trajectories or messages."`
	Format  string          `enum:"auto,jsonl,parquet" default:"auto" help:"jsonl or parquet. Default: as the file's name ends, else jsonl."`
	Source  string          `enum:"proxy,tracer" default:"proxy" help:"Whose spans hold the calls of triplets and trajectories: proxy or tracer. Default: ${default}."`
	Status  []rolloutStatus `placeholder:"STATUS" help:"Only rollouts of this status; repeat it or separate several by commas: ${rolloutStatuses}."`
	Mode    []rolloutMode   `placeholder:"MODE" help:"Only rollouts of this mode; repeat it or separate several by commas: train, val, test, none."`
	Rollout []string        `placeholder:"ID" help:"Only this rollout; repeat it or separate several by commas."`
	All     bool            `help:"Take attempts too that failed for a reason that is not the agent's, and those that have not ended."`
}

// Help is shown below the flags.
func (exportCommand) Help() string {
	return "Of each rollout the latest attempt is taken. Attempts that have not ended are left out, and so are those that failed for a reason " +
		"that is not the agent's (a timeout, a lost runner, a model that was away), as training on them would teach the wrong thing; " +
		"--all takes them. What was left out is told on standard error. The columns are described in docs/inspect.md.\n\n" +
		"Examples:\n  agl export --what trajectories --mode train train.parquet\n  agl export --what messages --status succeeded chats.jsonl"
}

// rolloutMode is a mode on the command line.
type rolloutMode agl.Mode

// UnmarshalText reads a mode; none is that of rollouts without one.
func (m *rolloutMode) UnmarshalText(text []byte) error {
	mode := agl.Mode(text)
	switch {
	case mode == "none":
		mode = agl.ModeNone
	case mode == agl.ModeNone || !mode.Valid():
		return fmt.Errorf("got %q, must be one of train, val, test, none", text)
	}
	*m = rolloutMode(mode)
	return nil
}

func (c *exportCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	var counts exportCounts
	write := func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		if err := c.write(ctx, store, buffered, &counts); err != nil {
			return err
		}
		return buffered.Flush()
	}
	if c.File == "-" {
		err = write(m.Stdout)
	} else {
		err = newFile(c.File, write)
	}
	if err != nil {
		return fmt.Errorf("export to %s: %w", c.File, err)
	}
	if _, err := fmt.Fprintf(m.Stderr, "agl: exported %s to %s\n", counts.String(c.What), c.File); err != nil {
		return fmt.Errorf("write to standard error: %w", err)
	}
	return nil
}

// exportCounts says what became of the rollouts that pass the filters.
type exportCounts struct {
	rows, attempts                       int
	masked, unfinished, evicted, without int // without: calls that lack tokens
}

// String tells it in one line.
func (n *exportCounts) String(what string) string {
	text := fmt.Sprintf("%d %s of %d attempts", n.rows, what, n.attempts)
	var left []string
	for _, reason := range []struct {
		count int
		what  string
	}{
		{n.masked, "masked"}, {n.unfinished, "not ended"}, {n.evicted, "whose spans had to make room"},
	} {
		if reason.count > 0 {
			left = append(left, fmt.Sprintf("%d %s", reason.count, reason.what))
		}
	}
	if len(left) > 0 {
		text += "; left out rollouts: " + strings.Join(left, ", ")
	}
	if n.without > 0 {
		text += fmt.Sprintf("; left out %d calls without tokens or reply", n.without)
	}
	return text
}

func (c *exportCommand) write(ctx context.Context, store agl.Store, w io.Writer, counts *exportCounts) error {
	parquet := c.Format == "parquet" || c.Format == "auto" && strings.EqualFold(filepath.Ext(c.File), ".parquet")
	switch c.What {
	case "triplets":
		return exportRows(ctx, c, store, newRowWriter[tripletRow](w, parquet), counts, c.triplets())
	case "trajectories":
		return exportRows(ctx, c, store, newRowWriter[trajectoryRow](w, parquet), counts, c.trajectories(counts))
	default:
		return exportRows(ctx, c, store, newRowWriter[messagesRow](w, parquet), counts, conversationRows)
	}
}

// exportRows goes through the rollouts one by one and writes what adapt makes of
// their spans.
func exportRows[T exportRow](
	ctx context.Context, c *exportCommand, store agl.Store, out rowWriter[T], counts *exportCounts,
	adapt func(origin rowOrigin, spans []agl.Span) ([]T, error),
) error {
	// Rollouts change their status while this goes on. The store is asked for all
	// of them, oldest first, so that no page is shifted by that.
	err := allPages(ctx, 0, func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		p.SortBy, p.Order = "start_time", agl.Ascending
		page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: c.Rollout, Paging: p})
		return page, c.errStore(err)
	}, func(r *agl.AttemptedRollout) error {
		if !c.wants(r, counts) {
			return nil
		}
		spans, err := attemptSpans(ctx, store, r)
		if errors.Is(err, agl.ErrEvicted) {
			counts.evicted++
			return nil
		}
		if err != nil {
			return c.errStore(err)
		}
		rows, err := adapt(originOf(r), spans)
		if err != nil {
			return fmt.Errorf("rollout %s, attempt %s: %w", r.RolloutID, r.Attempt.AttemptID, err)
		}
		counts.attempts++
		counts.rows += len(rows)
		return out.write(rows)
	})
	if err != nil {
		return err
	}
	return out.close()
}

// wants reports whether a rollout is exported, and counts it if only its attempt
// is in the way.
func (c *exportCommand) wants(r *agl.AttemptedRollout, counts *exportCounts) bool {
	switch {
	case len(c.Status) > 0 && !slices.Contains(c.Status, rolloutStatus(r.Status)):
		return false
	case len(c.Mode) > 0 && !slices.Contains(c.Mode, rolloutMode(r.Mode)):
		return false
	case r.Attempt == nil:
		counts.unfinished++
		return false
	case c.All:
		return true
	case r.Attempt.Status.Live():
		counts.unfinished++
		return false
	}
	// An attempt of a runner that reports no outcome has the one of its status.
	if outcome, _ := r.Attempt.Outcome(); outcome.Kind.Masked() {
		counts.masked++
		return false
	}
	return true
}

func attemptSpans(ctx context.Context, store agl.Store, r *agl.AttemptedRollout) ([]agl.Span, error) {
	var spans []agl.Span
	err := allPages(ctx, 0, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
		return store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Paging: p})
	}, func(s *agl.Span) error {
		spans = append(spans, *s)
		return nil
	})
	return spans, err
}

func (c *exportCommand) triplets() func(rowOrigin, []agl.Span) ([]tripletRow, error) {
	var source agl.Adapter[[]adapter.Triplet] = adapter.ProxyTriplets{}
	if c.Source == "tracer" {
		source = adapter.TracerTriplets{}
	}
	return func(origin rowOrigin, spans []agl.Span) ([]tripletRow, error) {
		triplets, err := source.Adapt(spans)
		if err != nil {
			return nil, err
		}
		rows := make([]tripletRow, 0, len(triplets))
		for i := range triplets {
			rows = append(rows, newTripletRow(origin, &triplets[i]))
		}
		return rows, nil
	}
}

func (c *exportCommand) trajectories(counts *exportCounts) func(rowOrigin, []agl.Span) ([]trajectoryRow, error) {
	var merge adapter.Trajectories
	if c.Source == "tracer" {
		merge.Source = adapter.TracerTriplets{}
	}
	return func(origin rowOrigin, spans []agl.Span) ([]trajectoryRow, error) {
		merged, err := merge.Adapt(spans)
		if err != nil {
			return nil, err
		}
		counts.without += len(merged.Report.WithoutTokens) + len(merged.Report.Lost)
		rows := make([]trajectoryRow, 0, len(merged.Trajectories))
		for i := range merged.Trajectories {
			rows = append(rows, newTrajectoryRow(origin, i, &merged.Trajectories[i], merged.Reward))
		}
		return rows, nil
	}
}

func conversationRows(origin rowOrigin, spans []agl.Span) ([]messagesRow, error) {
	conversations, err := adapter.Messages{}.Adapt(spans)
	if err != nil {
		return nil, err
	}
	reward, err := adapter.FinalReward(spans)
	if err != nil {
		return nil, err
	}
	rows := make([]messagesRow, 0, len(conversations))
	for _, conversation := range conversations {
		row, err := newMessagesRow(origin, conversation, reward)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
