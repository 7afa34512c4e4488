package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/internal/homedir"
	"github.com/agl-go/agl/internal/rawjson"
)

type enqueueCommand struct {
	flags.Store

	File         string                  `arg:"" help:"Task file, by its extension .jsonl, .csv or .parquet; - is JSON Lines from standard input."`
	Mode         string                  `enum:"train,val,test,none" default:"none" help:"What the rollouts are for: train, val, test or none. Default: ${default}."`
	Resources    string                  `placeholder:"FILE|JSON" help:"Publish resources, the JSON in this file or the JSON itself, such as {} for an agent that uses none, and run with them."`
	ResourcesID  string                  `placeholder:"ID" help:"The resources of the store to run with. Default: the latest."`
	Timeout      time.Duration           `placeholder:"DURATION" help:"Time limit of an attempt. Default: none."`
	Unresponsive time.Duration           `placeholder:"DURATION" help:"End an attempt that has sent no heartbeat for this long. Default: never."`
	MaxAttempts  int                     `default:"1" placeholder:"N" help:"Attempts of a rollout, the first one included. Default: ${default}."`
	RetryOn      []agl.AttemptStatus     `enum:"${attemptStatuses}" placeholder:"STATUS" help:"Try again after an attempt of this status; repeat it or separate several by commas: ${attemptStatuses}."`
	Column       []taskColumn            `sep:"none" placeholder:"NAME[=AS]" help:"Take this column, under another name if one is given; repeat it for several. Default: all of them."`
	Type         map[string]dataset.Type `mapsep:"none" placeholder:"NAME=TYPE" help:"What a CSV column holds: string, number, bool or json; repeat it for several. Default: string."`
	JSON         bool                    `help:"Print the rollouts as JSON, one a line, instead of their ids."`
}

func (c *enqueueCommand) Validate() error {
	switch {
	case c.Timeout < 0:
		return fmt.Errorf("--timeout=%s: must not be negative", c.Timeout)
	case c.Unresponsive < 0:
		return fmt.Errorf("--unresponsive=%s: must not be negative", c.Unresponsive)
	case c.MaxAttempts < 1:
		return fmt.Errorf("--max-attempts=%d: must be at least 1", c.MaxAttempts)
	case c.Resources != "" && c.ResourcesID != "":
		return errors.New("--resources and --resources-id: give one of them")
	case c.File == "-" && len(c.Column)+len(c.Type) > 0:
		return errors.New("--column and --type are for files, not for standard input")
	}
	return nil
}

// taskColumn is a column on the command line.
type taskColumn dataset.Column

// UnmarshalText reads NAME or NAME=AS.
func (c *taskColumn) UnmarshalText(text []byte) error {
	name, as, renamed := strings.Cut(string(text), "=")
	if name == "" || renamed && as == "" {
		return fmt.Errorf("got %q, must be NAME or NAME=AS", text)
	}
	*c = taskColumn{Name: name, As: as}
	return nil
}

func (c *enqueueCommand) options() dataset.Options {
	options := dataset.Options{Types: c.Type}
	for _, column := range c.Column {
		options.Columns = append(options.Columns, dataset.Column(column))
	}
	return options
}

func (c *enqueueCommand) run(ctx context.Context, out *console.Console) (err error) {
	tasks, closeTasks, err := c.tasks()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTasks()) }()
	// The whole file is read before anything is sent: a mistake in its last line must not leave a part of it enqueued.
	count := 0
	for _, err := range tasks {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		count++
	}
	if count == 0 {
		return agl.Errorf(agl.CodeInvalid, "%s: %w: it has no task", c.File, dataset.ErrEmpty)
	}
	resources, err := c.readResources()
	if err != nil {
		return err
	}
	store, closeStore, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	if c.Resources == "" {
		err = c.checkResources(ctx, out, store)
	} else {
		err = c.publish(ctx, out, store, resources)
	}
	if err != nil {
		return err
	}
	return c.send(ctx, out, store, tasks)
}

// readResources reads --resources, if it is given.
func (c *enqueueCommand) readResources() (resources agl.Resources, err error) {
	if c.Resources == "" {
		return nil, nil
	}
	data := []byte(c.Resources)
	if !strings.HasPrefix(c.Resources, "{") {
		var path string
		if path, err = homedir.Expand(c.Resources); err == nil {
			data, err = os.ReadFile(path)
		}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case err != nil:
	case len(bytes.TrimSpace(data)) == 0:
		err = errors.New("the file is empty, must be a JSON object of resources by name, such as {}")
	default:
		err = rawjson.Unmarshal(data, &resources)
	}
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		err = wrong.Err // without the names of types around it
	}
	if err != nil {
		return nil, fmt.Errorf("--resources=%s: %w", c.Resources, err)
	}
	return resources, nil
}

// publish makes resources the latest, and those of the rollouts.
func (c *enqueueCommand) publish(ctx context.Context, out *console.Console, store agl.Store, resources agl.Resources) error {
	bundle, err := store.AddResources(ctx, agl.AddResourcesParams{Resources: resources, IdempotencyKey: "agl-enqueue-" + rand.Text()})
	if err != nil {
		if agl.ErrorCode(err) == agl.CodeInvalid {
			err = fmt.Errorf("--resources=%s: %w", c.Resources, err)
		}
		return c.Wrap(err)
	}
	c.ResourcesID = bundle.ResourcesID
	return out.Summarize("published the resources as %s", bundle.ResourcesID)
}

// checkResources refuses resources that the store does not have, and says that it has none: rollouts fail without them.
func (c *enqueueCommand) checkResources(ctx context.Context, out *console.Console, store agl.Store) error {
	if c.ResourcesID != "" {
		_, err := store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: c.ResourcesID})
		if errors.Is(err, agl.ErrNotFound) {
			return fmt.Errorf("--resources-id=%s: the store has no such resources; agl resources lists them", c.ResourcesID)
		}
		return c.Wrap(err)
	}
	_, err := store.GetLatestResources(ctx)
	if errors.Is(err, agl.ErrNotFound) {
		return out.Summarize("the store has no resources, and rollouts fail without them; publish some: --resources FILE, or --resources {} for an agent that uses none")
	}
	return c.Wrap(err)
}

// tasks returns the tasks of the file. The sequence can be read more than once.
func (c *enqueueCommand) tasks() (iter.Seq2[jsontext.Value, error], func() error, error) {
	if c.File == "-" {
		tasks, err := dataset.Read(os.Stdin, "standard input")
		return values(tasks), func() error { return nil }, err
	}
	reader, err := dataset.Open(c.File, c.options())
	if err != nil {
		return nil, nil, err
	}
	return reader.Records(), reader.Close, nil
}

func values(tasks agl.Tasks) iter.Seq2[jsontext.Value, error] {
	return func(yield func(jsontext.Value, error) bool) {
		for _, task := range tasks {
			if !yield(task, nil) {
				return
			}
		}
	}
}

// The limits of one request. batchBytes limits the inputs; a larger input is sent alone.
const (
	batchRollouts = 1000
	batchBytes    = 4 << 20
)

// send enqueues the tasks in batches. Each has an idempotency key, so that a retried request enqueues nothing twice.
func (c *enqueueCommand) send(ctx context.Context, out *console.Console, store agl.Store, tasks iter.Seq2[jsontext.Value, error]) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that is gone must be an error that says how far it got
	prefix := "agl-enqueue-" + rand.Text()
	var batch []agl.EnqueueRollout
	bytes, sent, batches := 0, 0, 0
	flush := func() error {
		batches++
		rollouts, err := store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{
			Rollouts: batch, IdempotencyKey: fmt.Sprintf("%s-%d", prefix, batches),
		})
		if err != nil && ctx.Err() != nil { // main prints no error of an interrupt
			err = errors.Join(err, out.Summarize("interrupted after %d rollouts; the next %d may have been enqueued, too", sent, len(batch)))
		}
		if err != nil {
			return fmt.Errorf("enqueue %s: after %d rollouts: %w", c.File, sent, c.Wrap(err))
		}
		sent += len(rollouts)
		batch, bytes = batch[:0], 0
		if err := c.print(out, rollouts); err != nil {
			return fmt.Errorf("enqueue %s: after %d rollouts: %w", c.File, sent, err)
		}
		return nil
	}
	for task, err := range tasks {
		if err != nil {
			return fmt.Errorf("enqueue %s: after %d rollouts: %w", c.File, sent, err)
		}
		if len(batch) > 0 && bytes+len(task) > batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, bytes = append(batch, c.rollout(task)), bytes+len(task)
		if len(batch) == batchRollouts {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return flush()
}

func (c *enqueueCommand) rollout(task jsontext.Value) agl.EnqueueRollout {
	config := &agl.RolloutConfig{MaxAttempts: c.MaxAttempts}
	if c.Timeout > 0 {
		config.TimeoutSeconds = agl.Some(c.Timeout.Seconds())
	}
	if c.Unresponsive > 0 {
		config.UnresponsiveSeconds = agl.Some(c.Unresponsive.Seconds())
	}
	for _, s := range c.RetryOn {
		if !slices.Contains(config.RetryCondition, s) {
			config.RetryCondition = append(config.RetryCondition, s)
		}
	}
	r := agl.EnqueueRollout{Input: task, Config: config}
	if c.Mode != "none" {
		r.Mode = agl.Mode(c.Mode)
	}
	if c.ResourcesID != "" {
		r.ResourcesID = agl.Some(c.ResourcesID)
	}
	return r
}

func (c *enqueueCommand) print(out *console.Console, rollouts []agl.Rollout) error {
	for i := range rollouts {
		var err error
		if c.JSON {
			err = out.JSON(&rollouts[i])
		} else {
			err = out.Printf("%s\n", rollouts[i].RolloutID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
