package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// StdioTask is the line that a kept process gets for a task. It answers with a
// line that holds a result as in the result file, or {} for none; an attempt_id
// in it must be the task's. Other lines are output like any.
type StdioTask struct {
	RolloutID string            `json:"rollout_id"`
	AttemptID string            `json:"attempt_id"`
	Mode      string            `json:"mode"`
	Task      jsontext.Value    `json:"task"`
	Env       map[string]string `json:"env"` // the attempt's variables
}

// pool keeps idle processes, the one that was used last on top.
type pool struct {
	mu       sync.Mutex
	idle     []*kept
	closed   bool
	watchers sync.WaitGroup
}

// take returns an idle process, or nil. What has ended is left to its watcher.
func (p *pool) take() *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range slices.Backward(p.idle) {
		if !k.over() {
			p.idle = slices.Delete(p.idle, i, i+1)
			return k
		}
	}
	return nil
}

// give takes a process back; false when it is not to be kept.
func (p *pool) give(k *kept, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= most || k.over() {
		return false
	}
	p.idle = append(p.idle, k)
	return true
}

// watch removes a process that ends while it is idle, and ends what it leaves
// behind.
func (p *pool) watch(k *kept) {
	p.watchers.Go(func() {
		<-k.exited
		p.mu.Lock()
		i := slices.Index(p.idle, k)
		if i >= 0 {
			p.idle = slices.Delete(p.idle, i, i+1)
		}
		p.mu.Unlock()
		if i >= 0 {
			k.end() // otherwise whoever has taken it does
		}
	})
}

func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, k := range idle {
		p.watchers.Go(k.retire)
	}
	p.watchers.Wait()
}

// kept is a process that serves many attempts, one at a time.
type kept struct {
	*process

	mu   sync.Mutex
	turn *turn // nil between attempts
}

// turn is an attempt of a kept process.
type turn struct {
	attemptID      string
	stdout, stderr *output
	reply          chan []byte // capacity 1
}

// startKept starts a process to be kept.
func (a *Agent) startKept() (*kept, error) {
	dir := a.cfg.Dir
	if dir == "" {
		// The folder of its first attempt will be gone before the process is.
		dir = a.cfg.TempDir
	}
	p, err := a.start(dir, variables{"AGL_KEEPALIVE=" + string(KeepaliveStdio)}, true)
	if err != nil {
		return nil, err
	}
	k := &kept{process: p}
	k.copy(p.stderr, writerFunc(func(b []byte) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.turn != nil {
			_, _ = k.turn.stderr.Write(b) // never fails
		}
	}))
	k.streams.Go(k.read)
	a.pool.watch(k)
	return k, nil
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// read takes the lines of standard output apart: replies and others.
func (k *kept) read() {
	lines := bufio.NewReader(k.stdout)
	for {
		line, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxResult {
			var more []byte
			line = bytes.Clone(line)
			more, err = lines.ReadSlice('\n')
			line = append(line, more...)
		}
		k.line(line)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return // it has ended, or will be ended
		}
	}
}

func (k *kept) line(line []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == nil {
		return // of nobody's attempt
	}
	if repliesTo(line, k.turn.attemptID) {
		select {
		case k.turn.reply <- bytes.Clone(line):
			return
		default: // it has replied already
		}
	}
	_, _ = k.turn.stdout.Write(line) // never fails
}

// repliesTo reports whether a line is a reply to the attempt's task.
func repliesTo(line []byte, attemptID string) bool {
	value := jsontext.Value(bytes.TrimSpace(line))
	if value.Kind() != '{' || !value.IsValid(rawjson.Options()) {
		return false
	}
	var reply map[string]jsontext.Value
	if err := rawjson.Unmarshal(value, &reply); err != nil {
		return false
	}
	if id, named := reply["attempt_id"]; named {
		var s string
		return rawjson.Unmarshal(id, &s) == nil && s == attemptID
	}
	return len(reply) == 0 || reply["reward"] != nil || reply["rewards"] != nil || reply["error"] != nil
}

// begin gives the process an attempt's output.
func (k *kept) begin(t *turn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn = t
}

// retire lets an idle process end by itself, which the end of its input asks
// for, within the grace period.
func (k *kept) retire() {
	_ = k.stdin.Close() // nothing is in flight
	timer := time.NewTimer(k.agent.cfg.GracePeriod)
	defer timer.Stop()
	select {
	case <-k.exited:
	case <-timer.C:
	}
	k.end()
}

// serve has a kept process do a task.
func (a *Agent) serve(ctx context.Context, task agl.Task, f folder, vars variables) (result, error) {
	line, err := stdioLine(task, vars)
	if err != nil {
		return result{}, err
	}
	k := a.pool.take()
	if k == nil {
		if k, err = a.startKept(); err != nil {
			return result{}, err
		}
	}
	t := &turn{
		attemptID: task.Attempt.AttemptID, reply: make(chan []byte, 1),
		stdout: newOutput(a.cfg.OutputBytes), stderr: newOutput(a.cfg.OutputBytes),
	}
	k.begin(t)
	reply, err := k.ask(ctx, line, t)
	k.begin(nil)
	if err == nil && !a.pool.give(k, a.cfg.MaxIdle) {
		k.retire()
	}
	if err := errors.Join(record(ctx, "stdout", t.stdout), record(ctx, "stderr", t.stderr)); err != nil {
		a.cfg.Logger.WarnContext(ctx, "the output of an agent was not recorded", "error", err)
	}
	if err != nil {
		return result{}, err
	}
	said, err := parseResult(reply)
	if err != nil {
		return result{}, agl.Errorf(agl.CodeInvalid, "reply of the agent: %w", err)
	}
	if !said.said {
		said, err = readResult(f.result())
	}
	return said, err
}

// ask sends a task and waits for the reply. After an error the process is gone.
func (k *kept) ask(ctx context.Context, line []byte, t *turn) ([]byte, error) {
	written := make(chan error, 1)
	k.streams.Go(func() {
		_, err := k.stdin.Write(line) // ends with the process at the latest
		written <- err
	})
	select {
	case reply := <-t.reply:
		return reply, nil
	case <-k.exited:
	case <-ctx.Done():
	}
	k.await(ctx, k.agent.cfg.GracePeriod)
	select {
	case reply := <-t.reply: // it replied and ended; that it is gone is found when it is taken next
		return reply, nil
	default:
	}
	if err := k.failure(t.stderr); err != nil || ctx.Err() != nil {
		return nil, err
	}
	if err := <-written; err != nil {
		return nil, fmt.Errorf("the agent ended before it had read its task: %w", err)
	}
	return nil, errNoReply
}

var errNoReply = errors.New("the agent ended without a reply")

// stdioLine is the line for a task.
func stdioLine(task agl.Task, vars variables) ([]byte, error) {
	env := make(map[string]string, len(vars))
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	line, err := json.Marshal(StdioTask{
		RolloutID: task.Rollout.RolloutID, AttemptID: task.Attempt.AttemptID, Mode: string(task.Rollout.Mode),
		Task: task.Input(), Env: env,
	}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.Multiline(false))
	if err != nil {
		return nil, fmt.Errorf("write the task as JSON: %w", err)
	}
	return append(line, '\n'), nil
}
