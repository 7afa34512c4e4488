package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/adapter/rows"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/cmd/agl/internal/rowfile"
)

type exportCommand struct {
	File string `arg:"" help:"The new file, or - for standard output."`

	flags.StoreOrRun `set:"order= It may come first."`

	What    string              `required:"" enum:"triplets,trajectories,messages,batch" help:"What to make of the spans: triplets, trajectories, messages or batch."`
	Format  string              `enum:"auto,jsonl,parquet,npz" default:"auto" help:"jsonl, parquet or, for a batch, npz. Default: as the file's name ends, else jsonl."`
	Source  rows.Source         `enum:"proxy,tracer" default:"proxy" help:"Whose spans hold the calls of triplets, trajectories and batches: proxy or tracer. Default: ${default}."`
	Status  []agl.RolloutStatus `enum:"${rolloutStatuses}" placeholder:"STATUS" help:"Only rollouts of this status; repeat it or separate several by commas: ${rolloutStatuses}."`
	Mode    []string            `enum:"train,val,test,none" placeholder:"MODE" help:"Only rollouts of this mode; repeat it or separate several by commas: train, val, test, none."`
	Rollout []string            `placeholder:"ID" help:"Only this rollout; repeat it or separate several by commas."`
	Level   rows.Level          `enum:"trajectory,transition" default:"trajectory" help:"A row of a batch: trajectory (calls that continue one another) or transition (each call). Default: ${default}."`
	Prompt  int                 `name:"prompt-length" placeholder:"N" help:"Columns of a batch's prompts. Default: the longest prompt."`
	Reply   int                 `name:"response-length" placeholder:"N" help:"Columns of a batch's responses. Default: the longest response."`
	Pad     int32               `name:"pad-token" placeholder:"ID" help:"Token id of a batch's padding. Default: 0."`
	All     bool                `help:"Also take attempts that failed through no fault of the agent, and those that have not ended."`
}

// Validate puts the arguments in order.
func (c *exportCommand) Validate() error {
	if err := c.Order(&c.File, "", "file"); err != nil {
		return err
	}
	if c.What != "batch" && (c.Prompt != 0 || c.Reply != 0 || c.Pad != 0 || c.format() == "npz") {
		return errors.New("--prompt-length, --response-length, --pad-token and npz need --what batch")
	}
	if c.Prompt < 0 || c.Reply < 0 {
		return fmt.Errorf("--prompt-length=%d, --response-length=%d: must not be negative", c.Prompt, c.Reply)
	}
	return needsFile(c.File)
}

// needsFile returns an error if the only argument is a folder.
func needsFile(file string) error {
	if file == "" {
		return errors.New("no file is given; name a new one, or - for standard output")
	}
	return nil
}

func (c *exportCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	var counts exportCounts
	err := out.WriteFile(ctx, c.File, func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		if err := c.write(ctx, store, buffered, &counts); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return fmt.Errorf("export to %s: %w", c.File, err)
	}
	return out.Summarize("exported %s", counts.describe(c.What, c.File))
}

// exportCounts counts the rollouts that pass the filters, by whether and why they are left out.
type exportCounts struct {
	rows, attempts                       int
	masked, unfinished, evicted, without int // without: calls that lack tokens

	unreadable int
	why        error // the first of them could not be read
}

// describe describes the export to a file in a line.
func (n *exportCounts) describe(what, file string) string {
	if what == "batch" {
		what = "rows"
	}
	text := fmt.Sprintf("%d %s of %d attempts to %s", n.rows, what, n.attempts, file)
	var left []string
	for _, reason := range []struct {
		count int
		what  string
	}{
		{n.masked, "masked"}, {n.unfinished, "not ended"}, {n.evicted, "with evicted spans"},
		{n.unreadable, fmt.Sprintf("that cannot be read (%v)", n.why)},
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
	parquet := c.format() == "parquet"
	switch c.What {
	case "triplets":
		return exportRows(ctx, c, store, rowfile.NewWriter[rows.Triplet](w, parquet), counts, func(origin rows.Origin, spans agl.ShortSpans) ([]rows.Triplet, error) {
			return rows.Triplets(origin, spans, c.Source)
		})
	case "trajectories":
		return exportRows(ctx, c, store, rowfile.NewWriter[rows.Trajectory](w, parquet), counts, func(origin rows.Origin, spans agl.ShortSpans) ([]rows.Trajectory, error) {
			made, left, err := rows.Trajectories(origin, spans, c.Source)
			counts.without += left
			return made, err
		})
	case "batch":
		return c.batch(ctx, store, w, counts)
	default:
		return exportRows(ctx, c, store, rowfile.NewWriter[rows.Messages](w, parquet), counts, func(origin rows.Origin, spans agl.ShortSpans) ([]rows.Messages, error) {
			return rows.Conversations(origin, spans.Spans)
		})
	}
}

// format is that of the file.
func (c *exportCommand) format() string {
	if c.Format != "auto" {
		return c.Format
	}
	switch extension := strings.ToLower(filepath.Ext(c.File)); extension {
	case ".parquet", ".npz":
		return extension[1:]
	default:
		return "jsonl"
	}
}

// batch writes the padded batch of all rollouts.
func (c *exportCommand) batch(ctx context.Context, store agl.Store, w io.Writer, counts *exportCounts) error {
	var sequences []adapter.Sequence
	err := c.each(ctx, store, counts, func(r *agl.AttemptedRollout, spans agl.ShortSpans) (int, error) {
		made, err := rows.Sequences(r, spans, c.Source, c.Level)
		sequences = append(sequences, made...)
		return len(made), err
	})
	if err != nil {
		return err
	}
	b, err := adapter.NewBatch(sequences, adapter.BatchConfig{PromptLength: c.Prompt, ResponseLength: c.Reply, Pad: c.Pad})
	if err != nil {
		return err
	}
	if c.format() == "npz" {
		return rows.WriteNPZ(w, b)
	}
	out := rowfile.NewWriter[rows.BatchRow](w, c.format() == "parquet")
	if err := out.Write(rows.BatchRows(b)); err != nil {
		return err
	}
	return out.Close()
}

// exportRows writes what adapt makes of the spans of each rollout, one rollout at a time.
func exportRows[T rows.Row](
	ctx context.Context, c *exportCommand, store agl.Store, out rowfile.Writer[T], counts *exportCounts,
	adapt func(origin rows.Origin, spans agl.ShortSpans) ([]T, error),
) error {
	err := c.each(ctx, store, counts, func(r *agl.AttemptedRollout, spans agl.ShortSpans) (int, error) {
		made, err := adapt(rows.OriginOf(r), spans)
		if err != nil {
			return 0, err
		}
		return len(made), out.Write(made)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// each calls take with every rollout that is exported and its spans. It returns the number
// of rows that were made of them.
func (c *exportCommand) each(
	ctx context.Context, store agl.Store, counts *exportCounts, take func(r *agl.AttemptedRollout, spans agl.ShortSpans) (int, error),
) error {
	// Rollouts change their status during the export. All of them are queried,
	// oldest first, so that this shifts no page; wants filters them here.
	unknown := slices.Clone(c.Rollout)
	for r, err := range agl.Pages(ctx, agl.Paging{}, pageSize, func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		p.SortBy, p.Order = "start_time", agl.Ascending
		return store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: c.Rollout, Paging: p})
	}) {
		if err != nil {
			return c.Wrap(err)
		}
		unknown = slices.DeleteFunc(unknown, func(id string) bool { return id == r.RolloutID })
		if !c.wants(r, counts) {
			continue
		}
		spans, err := c.spans(ctx, store, r)
		if errors.Is(err, agl.ErrEvicted) {
			counts.evicted++
			continue
		}
		if err != nil {
			return c.Wrap(err)
		}
		made, err := take(r, spans)
		if errors.Is(err, agl.ErrInvalid) {
			counts.unreadable++
			counts.why = cmp.Or(counts.why, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("rollout %q, attempt %q: %w", r.RolloutID, r.Attempt.AttemptID, err)
		}
		counts.attempts++
		counts.rows += made
	}
	if len(unknown) > 0 {
		return fmt.Errorf("--rollout=%s: the store has no such rollout", unknown[0])
	}
	return nil
}

// wants reports whether a rollout is exported, and counts one that passes the filters
// but is left out because of its attempt.
func (c *exportCommand) wants(r *agl.AttemptedRollout, counts *exportCounts) bool {
	switch {
	case len(c.Status) > 0 && !slices.Contains(c.Status, r.Status):
		return false
	case len(c.Mode) > 0 && !slices.Contains(c.Mode, cmp.Or(string(r.Mode), "none")):
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
	// For an attempt without an outcome, Outcome derives one from the status.
	if outcome, _ := r.Attempt.Outcome(); outcome.Kind.Masked() {
		counts.masked++
		return false
	}
	return true
}

// spans reads the spans of a rollout's latest attempt: in short form if the adapter reads that, and otherwise in pages.
func (c *exportCommand) spans(ctx context.Context, store agl.Store, r *agl.AttemptedRollout) (agl.ShortSpans, error) {
	query := agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	source := c.Source.Adapter()
	if _, short := source.(agl.ShortAdapter[[]adapter.Triplet]); short && c.What != "messages" {
		return agl.QuerySpansFor(ctx, store, query, source)
	}
	if c.What == "messages" {
		query.AttributeNames = rows.ConversationAttributes()
	}
	spans, err := attemptSpans(ctx, store, query, wholeSpans)
	return agl.ShortSpans{Spans: spans}, err
}
