package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// StdioTask is the line of JSON that a kept process reads for each task. The process replies with a line that holds a result
// in the form of the result file, or {} for no result; an attempt_id in it must be the task's. Its other lines are
// ordinary output.
type StdioTask struct {
	RolloutID string            `json:"rollout_id"`
	AttemptID string            `json:"attempt_id"`
	Mode      string            `json:"mode"`
	Task      jsontext.Value    `json:"task"`
	Env       map[string]string `json:"env"` // the attempt's variables
}

// kept is a process that serves many attempts, one at a time.
type kept struct {
	*agentProcess

	mu   sync.Mutex
	turn *turn // nil between attempts
}

// turn is the attempt that a kept process is serving.
type turn struct {
	attemptID      string
	stdout, stderr *output
	reply          chan []byte // capacity 1
}

// startKept starts a process that is kept after its attempt.
func startKept(l *launcher, dir string) (*kept, error) {
	p, err := l.start(dir, variables{"AGL_KEEPALIVE=" + string(KeepaliveStdio)}, true)
	if err != nil {
		return nil, err
	}
	k := &kept{agentProcess: p}
	k.copy(p.stderr, writerFunc(func(b []byte) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.turn != nil {
			_, _ = k.turn.stderr.Write(b) // never fails
		}
	}))
	k.streams.Go(k.read)
	return k, nil
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// read passes on the lines of standard output, which are replies or ordinary output.
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
			return
		}
	}
}

func (k *kept) line(line []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == nil {
		return // output between attempts
	}
	if repliesTo(line, k.turn.attemptID) {
		select {
		case k.turn.reply <- bytes.Clone(line):
			return
		default: // a second reply
		}
	}
	_, _ = k.turn.stdout.Write(line) // never fails
}

// repliesTo reports whether a line is a reply to the attempt's task.
func repliesTo(line []byte, attemptID string) bool {
	value := jsontext.Value(bytes.TrimSpace(line))
	if !bytes.HasPrefix(value, []byte("{")) {
		return false
	}
	if !value.IsValid(rawjson.Options()) {
		return rewardMember.Match(value) // a broken reply: the process may never write another line
	}
	var reply map[string]jsontext.Value
	if err := rawjson.Unmarshal(value, &reply); err != nil {
		return false
	}
	if id, named := reply["attempt_id"]; named {
		var s string
		return rawjson.Unmarshal(id, &s) == nil && s == attemptID
	}
	for member := range reply {
		switch strings.ToLower(member) {
		case "reward", "rewards", "error":
			return true
		}
	}
	return len(reply) == 0
}

func (k *kept) setTurn(t *turn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn = t
}

// retire closes the input of an idle process, which should make it exit, and ends it after the grace period.
func (k *kept) retire() {
	_ = k.stdin.Close() // the process reads the end of its input
	k.waitGrace()
	k.end()
}

// serve has the process do a task and returns its reply. After an error the process has ended.
func (k *kept) serve(ctx context.Context, line []byte, t *turn) ([]byte, error) {
	k.setTurn(t)
	defer k.setTurn(nil)
	written := make(chan error, 1)
	k.streams.Go(func() {
		_, err := k.stdin.Write(line) // returns when the process ends, at the latest
		written <- err
	})
	select {
	case reply := <-t.reply:
		return reply, nil
	case <-k.exited:
	case <-ctx.Done():
	}
	k.await(ctx)
	select {
	case reply := <-t.reply: // it ended after its reply
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

var errNoReply = errors.New("the agent ended without a reply; one with keepalive reads a task from each line of its input, until its end")

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
