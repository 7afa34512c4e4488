package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/internal/backoff"
)

// pageSize is the largest number of items of a request.
const pageSize = 1000

// listFlags are the flags of a command that lists items, which sets the variable limit, and order as [flags.StoreOrRun] has it.
type listFlags struct {
	flags.StoreOrRun

	Limit int  `default:"${limit}" help:"List at most this many; 0 is all."`
	JSON  bool `help:"Print JSON, one item a line, instead of a table."`
}

func (f *listFlags) Validate() error {
	if f.Limit < 0 {
		return fmt.Errorf("--limit=%d: must be 0 (all) or more", f.Limit)
	}
	return nil
}

// document prints a value that was decoded from JSON as JSON again.
type document struct{ of any }

func (d document) AppendJSON(dst []byte) []byte {
	doc, err := json.Marshal(d.of)
	if err != nil {
		doc = []byte("null")
	}
	return append(dst, doc...)
}

// printItems prints items as JSON, one a line, or as a table with a row for each.
func printItems[T any](out *console.Console, asJSON bool, table *console.Table, items []T, row func(*T) []string) error {
	for i := range items {
		if !asJSON {
			table.Rows = append(table.Rows, row(&items[i]))
		} else if err := out.JSON(document{&items[i]}); err != nil {
			return err
		}
	}
	if asJSON {
		return nil
	}
	return table.Print(out)
}

// listing lists the items of one kind and follows their changes.
type listing[T any, P interface {
	*T
	console.Document
}] struct {
	flags   listFlags
	headers []string
	drop    []string // headers of the columns that a narrow terminal leaves out, in order
	status  int      // the column of the status
	row     func(context.Context, P) ([]string, error)
	query   func(context.Context, agl.Paging) (agl.Page[T], error)
	page    int // the most items of a request; default pageSize

	// wanted and get are for watch: wanted reports whether an event is about an item
	// that the flags select, get returns that item, or errNotSelected if the event did not tell.
	wanted func(agl.Event) bool
	get    func(context.Context, agl.Event) (T, error)
}

// run lists the items or, with watch, follows their changes too.
func (l *listing[T, P]) run(ctx context.Context, out *console.Console, store agl.Store, watch bool) error {
	if watch {
		return l.watch(ctx, out, store)
	}
	return l.show(ctx, out)
}

// show lists the items as a table or as JSON lines.
func (l *listing[T, P]) show(ctx context.Context, out *console.Console) error {
	table := console.Table{Headers: l.headers, Status: l.status, Drop: l.drop}
	for item, err := range agl.Pages(ctx, agl.Paging{Limit: l.flags.Limit}, cmp.Or(l.page, pageSize), l.query) {
		if err != nil {
			return l.flags.Wrap(err)
		}
		if l.flags.JSON {
			if err := out.JSON(P(item)); err != nil {
				return err
			}
			continue
		}
		cells, err := l.row(ctx, item)
		if err != nil {
			return l.flags.Wrap(err)
		}
		table.Rows = append(table.Rows, cells)
	}
	if l.flags.JSON {
		return nil
	}
	return table.Print(out)
}

// noEvent is an id that no event has: a stream that resumes after it begins with a reset.
const noEvent = "none"

// watch lists the items and then prints a line for every change, until ctx ends. The stream starts before the listing: a
// change in between is shown twice rather than missed. A store that goes away, such as for a restart, is waited for.
func (l *listing[T, P]) watch(ctx context.Context, out *console.Console, store agl.Store) error {
	var absence absence
	for last := noEvent; ; {
		err := l.flags.Wrap(errors.New("the stream of events has ended"))
		for event, failure := range store.Events(ctx, agl.EventsParams{Since: last}) {
			if err = l.flags.Wrap(failure); err == nil {
				err = l.tell(ctx, out, event)
			}
			if err != nil {
				break
			}
			last = cmp.Or(event.ID, noEvent)
			absence.over()
		}
		if err = absence.wait(ctx, out, err); err != nil {
			return watchEnded(ctx, err)
		}
	}
}

// tell prints what an event says.
func (l *listing[T, P]) tell(ctx context.Context, out *console.Console, event agl.Event) error {
	switch {
	case event.Kind == agl.EventReset:
		return l.show(ctx, out)
	case l.wanted(event):
		return l.printChange(ctx, out, event)
	}
	return nil
}

// absence is the time in which a store that was there does not answer those who watch it.
type absence struct {
	seen, told bool
}

// over notes that the store has answered.
func (a *absence) over() { a.seen, a.told = true, false }

// absenceStep is how long to wait before a store is asked again. Its client has repeated the call until then.
const absenceStep = time.Second

// wait returns at once with an error that does not mean that the store is away, and with any before it was there.
func (a *absence) wait(ctx context.Context, out *console.Console, err error) error {
	if !a.seen || !errors.Is(err, agl.ErrUnavailable) {
		return err
	}
	if !a.told {
		a.told = true
		if err := out.Summarize("the store is away; --watch goes on when it is back: %v", err); err != nil {
			return err
		}
	}
	return backoff.Sleep(ctx, absenceStep)
}

// errNotSelected means that an item is not one that the flags select.
var errNotSelected = errors.New("not selected")

// deleted is the status in the event of a deleted item.
const deleted = "deleted"

func (l *listing[T, P]) printChange(ctx context.Context, out *console.Console, event agl.Event) error {
	item, err := l.get(ctx, event)
	switch {
	case errors.Is(err, errNotSelected):
		return nil
	case event.Status == deleted || errors.Is(err, agl.ErrNotFound):
		if l.flags.JSON {
			return out.JSON(&event)
		}
		return out.Printf("%s  %s\n", cmp.Or(event.RolloutID, event.WorkerID), deleted)
	case err != nil:
		return l.flags.Wrap(err)
	case l.flags.JSON:
		return out.JSON(P(&item))
	}
	cells, err := l.row(ctx, &item)
	if err != nil {
		return l.flags.Wrap(err)
	}
	cells[l.status] = event.Status // the item may have changed again since
	return out.Printf("%s\n", strings.Join(cells, "  "))
}

// plainRow is a row that needs nothing but its item.
func plainRow[P any](row func(P) []string) func(context.Context, P) ([]string, error) {
	return func(_ context.Context, item P) ([]string, error) { return row(item), nil }
}

// watchEnded returns the user's interrupt, if there was one, instead of the error that it caused.
func watchEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
