package algorithms

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpproxy"
	"github.com/agl-go/agl/internal/procgroup"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/trainer/display"
)

// Command is an algorithm in any language: a program that finds the addresses of the run in its
// environment, and whose exit code says whether the run succeeded.
type Command struct {
	// Command is the program with its arguments; Dir is where it starts.
	Command []string
	Dir     string
}

func commandKeys(dir string) (yamlfile.Value, Algorithm) {
	a := &Command{Dir: dir}
	return yamlfile.Command(&a.Command), a
}

// Name implements [Algorithm].
func (*Command) Name() string { return "command" }

// Describe implements [Algorithm].
func (a *Command) Describe() string { return strings.Join(a.Command, " ") }

// Needs implements [Algorithm].
func (*Command) Needs() Needs { return Needs{OwnModel: true} }

// Curves implements [Algorithm].
func (*Command) Curves(string) ([]Curve, error) { return nil, nil }

// New implements [Algorithm].
func (a *Command) New(p Parts) (Run, error) {
	c := *a
	if program := c.Command[0]; strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		c.Command = append([]string{filepath.Join(c.Dir, program)}, c.Command[1:]...)
	}
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "algorithm.command: %w", err)
	}
	return &commandRun{Command: c, parts: p}, nil
}

// commandRun is a run of the program.
type commandRun struct {
	Command
	parts Parts
}

// commandGrace is how long the program may take to end after SIGTERM.
const commandGrace = 10 * time.Second

// outputGrace bounds how long the output of the program is read once it has ended, in case something that survived it holds
// the pipe open.
const outputGrace = 2 * time.Second

// The names of the task files in the folder of the run.
const (
	trainTasksFile = "tasks-train.jsonl"
	valTasksFile   = "tasks-val.jsonl"
)

// Run implements [agl.Algorithm].
func (r *commandRun) Run(ctx context.Context, in agl.AlgorithmInput) error {
	if err := addEmpty(ctx, in); err != nil {
		return err
	}
	out := r.parts.RunConfig.OutDir
	env := append(slices.Clone(httpproxy.Bypass(r.parts.Environ)),
		"AGL_STORE_URL="+in.StoreURL, "AGL_TOKEN="+r.parts.StoreToken, "AGL_RUN_DIR="+out, "AGL_RUN_ID="+r.parts.RunConfig.RunID, fmt.Sprintf("AGL_SEED=%d", r.parts.RunConfig.Seed))
	if in.Proxy != nil {
		env = append(env, "AGL_PROXY_URL="+in.Proxy.URL(), "AGL_PROXY_TOKEN="+in.Proxy.Token())
	}
	for _, file := range []struct {
		variable, name string
		tasks          agl.Dataset
	}{{"AGL_TRAIN_TASKS", trainTasksFile, in.Train}, {"AGL_VAL_TASKS", valTasksFile, in.Val}} {
		if file.tasks == nil {
			continue
		}
		path := filepath.Join(out, file.name)
		if err := writeTasks(path, file.tasks); err != nil {
			return fmt.Errorf("write the tasks: %w", err)
		}
		env = append(env, file.variable+"="+path)
	}
	return r.execute(ctx, env)
}

// addEmpty adds an empty bundle of resources for agents without a model and without prompts, if the store has no bundle:
// rollouts need one.
func addEmpty(ctx context.Context, in agl.AlgorithmInput) error {
	if len(in.InitialResources) > 0 || in.Proxy != nil {
		return nil // the trainer has added them
	}
	_, err := in.Store.GetLatestResources(ctx)
	if errors.Is(err, agl.ErrNotFound) {
		_, err = in.Store.AddResources(ctx, agl.AddResourcesParams{})
	}
	if err != nil {
		return fmt.Errorf("add empty resources: %w", err)
	}
	return nil
}

// writeTasks writes one task on each line.
func writeTasks(path string, tasks agl.Dataset) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	for i := range tasks.Len() {
		task, err := tasks.Task(i)
		if err != nil {
			return err
		}
		line := append(jsontext.Value(nil), task...)
		if err := line.Compact(); err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}

// execute runs the program until it ends. When ctx ends, it is asked to end.
func (r *commandRun) execute(ctx context.Context, env []string) error {
	cmd := exec.Command(r.Command.Command[0], r.Command.Command[1:]...) //nolint:noctx // it is stopped in steps
	cmd.Dir, cmd.Env = r.Dir, env
	reading, writing, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = writing, writing
	group := procgroup.New(cmd)
	sweep, err := r.parts.Reaper.Start(cmd)
	if err := errors.Join(err, writing.Close()); err != nil {
		return errors.Join(fmt.Errorf("algorithm.command: %w", err), reading.Close())
	}
	var last string
	shown := make(chan struct{}) // its output has ended
	go func() {
		defer close(shown)
		last = r.show(reading)
	}()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		go func() {
			select {
			case <-execution.Forced(ctx): // a second signal
				group.Kill()
			case <-group.Gone():
			}
		}()
		group.End(commandGrace)
	})
	err = group.Wait()
	sweep()
	_ = reading.SetReadDeadline(time.Now().Add(outputGrace))
	<-shown
	if !stop() {
		<-stopped
		return context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	if last != "" {
		last = ": " + last
	}
	return fmt.Errorf("the algorithm's program ended with %w%s", err, last)
}

// maxLine bounds a line of the program that is shown.
const maxLine = 64 << 10

// show passes the program's output on, line by line, and returns the last line.
func (r *commandRun) show(out *os.File) (last string) {
	defer out.Close()
	lines := bufio.NewReaderSize(out, maxLine)
	for {
		line, _, err := lines.ReadLine()
		if text := strings.TrimSpace(string(line)); text != "" {
			last = text
			r.parts.Display.Update(display.Update{Line: text})
		}
		if err != nil {
			return last
		}
	}
}

// Result implements [Run].
func (r *commandRun) Result() Result {
	return Result{Facts: []Fact{{Name: "program", Value: strings.Join(r.Command.Command, " ")}}}
}
