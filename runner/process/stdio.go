package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

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

	used bool // it has replied to a task

	// drainErrors passes on what standard error holds, without waiting, so that what was written before a reply is the
	// attempt's. It needs mu. It is nil before the first task.
	drainErrors func()

	mu     sync.Mutex
	turn   *turn // nil between attempts
	astray bool  // it has replied more than once to a task, so nobody knows to which task its next reply belongs, or can reply no more
}

// turn is the attempt that a kept process is serving.
type turn struct {
	attemptID      string
	stdout, stderr *output
	replied        bool
	reply          chan stdioReply // capacity 1
	printed        []byte          // in place of a reply: the last object or, without one, the last line
}

// note keeps a line that is no reply, for a message.
func (t *turn) note(line []byte) {
	const most = 1 << 10
	line = trim(line)
	if len(line) > 0 && (line[0] == '{' || !bytes.HasPrefix(t.printed, []byte("{"))) {
		t.printed = append(t.printed[:0], line[:min(len(line), most)]...)
	}
}

// instead says what was printed in place of a reply. The process has ended.
func (t *turn) instead() string {
	if len(t.printed) == 0 {
		return "; nothing was on its standard output, where a reply must be flushed"
	}
	const shown = 200
	why := "a reply is " + wantedResult
	if jsontext.Value(t.printed).IsValid(rawjson.Options()) {
		if id, named := agl.Attributes(t.printed).Get("attempt_id"); named {
			why = fmt.Sprintf("its attempt_id is %s, must be %q as in the task, or absent", id, t.attemptID)
		}
	}
	return fmt.Sprintf("; it printed %q, but %s", t.printed[:min(len(t.printed), shown)], why)
}

// stdioReply is a line that replies to a task.
type stdioReply struct {
	line  []byte
	wrong error // why it cannot be used, such as one from before the process had read the task; nil if it can
}

// startKept starts a process that is kept after its attempt. Without Config.Dir it gets a working directory of its own: that of
// its first attempt will be removed before the process ends.
func (a *Agent) startKept() (*kept, error) {
	dir, removeDir := a.cfg.Dir, func() {}
	if dir == "" {
		var err error
		if dir, removeDir, err = a.cfg.makeKeptFolder(); err != nil {
			return nil, &agl.OutcomeError{Kind: agl.OutcomeSetupError, Err: fmt.Errorf("make the agent's working directory: %w", err)}
		}
	}
	p, err := a.launcher.start(dir, variables{"AGL_KEEPALIVE=" + string(KeepaliveStdio)}, true)
	if err != nil {
		removeDir()
		return nil, err
	}
	p.removeDir = removeDir
	return &kept{agentProcess: p}, nil
}

// errorText passes on a part of standard error. What is written between attempts belongs to none.
func (k *kept) errorText(b []byte) {
	if k.turn != nil {
		_, _ = k.turn.stderr.Write(b) // never fails
	}
}

// read passes on the lines of standard output, which are replies or ordinary output.
func (k *kept) read() {
	lines := bufio.NewReader(&stream{pipe: k.stdout})
	for {
		line, err := readLine(lines)
		k.line(line)
		if err != nil {
			k.fallSilent()
			return
		}
	}
}

// fallSilent ends the turn of a process that has closed its output and lives on. Of most, the end follows at once, and says more.
func (k *kept) fallSilent() {
	select {
	case <-k.exited:
		return
	case <-time.After(pipeGrace):
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.astray = true
	if k.turn != nil && !k.turn.replied {
		k.turn.replied = true
		k.turn.reply <- stdioReply{wrong: errClosedOutput}
	}
}

// printedLine is a line of standard output.
type printedLine struct {
	text []byte // of a long line the first maxResult bytes or a little more
	end  []byte // the last bytes of a long line; nil otherwise
}

// readLine reads a line; of one that ends with the stream, the error is that of the end.
func readLine(from *bufio.Reader) (line printedLine, err error) {
	part, err := from.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return printedLine{text: part}, err
	}
	for line.text = bytes.Clone(part); errors.Is(err, bufio.ErrBufferFull); {
		if len(line.text) > maxResult {
			line.end = append(line.end[:0], part...) // with the next part, which may be short
		}
		part, err = from.ReadSlice('\n')
		if line.end != nil {
			line.end = append(line.end, part...)
		} else {
			line.text = append(line.text, part...)
		}
	}
	return line, err
}

// repliesTo reports whether a line is a reply to the attempt's task.
func (l printedLine) repliesTo(attemptID string) bool {
	if l.end != nil {
		return bytes.HasPrefix(bytes.TrimLeft(l.text, " \t\r"), []byte("{")) && isCutResult(l.text, l.end)
	}
	return repliesTo(l.text, attemptID)
}

func (k *kept) line(line printedLine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == nil { // output between attempts
		if line.repliesTo("") {
			k.goAstray()
		}
		return
	}
	if line.repliesTo(k.turn.attemptID) {
		early := unread(k.stdin) > 1 // not only the line end, which a parser of JSON does not need
		if early || k.turn.replied && line.repliesTo("") {
			k.goAstray()
		}
		if !k.turn.replied {
			k.turn.replied = true
			k.drainErrors()
			reply := stdioReply{line: bytes.Clone(line.text)}
			switch {
			case early:
				reply.wrong = errReplies
			case line.end != nil:
				reply.wrong = errLongReply
			}
			k.turn.reply <- reply
			return
		}
	}
	if !k.turn.replied {
		k.turn.note(line.text)
	}
	_, _ = k.turn.stdout.Write(line.text) // never fails
	if line.end != nil {
		_, _ = k.turn.stdout.Write(append([]byte("\n[the middle of this line is left out here]\n"), line.end...))
	}
}

func (k *kept) isAstray() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.astray
}

// goAstray notes that the process has replied more than once to a task.
func (k *kept) goAstray() {
	if !k.astray {
		k.astray = true
		k.log.Warn("an agent with keepalive is ended", "error", errReplies)
	}
}

var errReplies = errors.New(`the agent replied more than once to a task, and rewards may have gone to later tasks: with keepalive, every line of its output that is a JSON object with "reward", "rewards" or "error" is a reply, and so is {}`)

// repliesTo reports whether a line is a reply to the attempt's task.
func repliesTo(line []byte, attemptID string) bool {
	value := jsontext.Value(trim(line))
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

// begin begins a turn and writes the beginning of its line at once: what the process replies before it has read that is no
// reply to this task. It is false if the process cannot be relied on.
func (k *kept) begin(t *turn, line []byte) (written int, ok bool, err error) {
	const fits = 1 << 10 // into the pipe, of which at most a line end is unread
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.astray {
		return 0, false, nil
	}
	if k.drainErrors != nil {
		k.drainErrors() // what was written since the last reply
	}
	k.turn = t
	if k.drainErrors == nil { // the first task: what the process has written since its start belongs to it
		k.copyErrors()
		k.streams.Go(k.read)
	}
	written, err = k.stdin.Write(line[:min(len(line), fits)])
	return written, true, err
}

func (k *kept) endTurn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn = nil
}

// retire closes the input of an idle process, which should make it exit, and ends it after the grace period.
func (k *kept) retire() {
	_ = k.stdin.Close() // the process reads the end of its input
	k.waitGrace()
	k.end()
}

// serve has the process do a task and returns its reply. After an error the process has ended. The error is errLeft if it ended
// between two tasks.
func (k *kept) serve(ctx context.Context, line []byte, t *turn) ([]byte, error) {
	n, ok, failed := k.begin(t, line)
	if !ok {
		k.end()
		return nil, errLeft
	}
	defer k.endTurn()
	written := make(chan struct{})
	k.streams.Go(func() {
		defer close(written)
		if failed == nil {
			var rest int
			rest, failed = k.stdin.Write(line[n:]) // returns when the process ends, at the latest
			n += rest
		}
	})
	left := 0
	select {
	case reply := <-t.reply:
		if reply.wrong != nil {
			k.end()
			return nil, reply.wrong
		}
		k.used = true
		return reply.line, nil
	case <-k.exited:
		left = unread(k.stdin)
	case <-ctx.Done():
	}
	k.await(ctx)
	select {
	case reply := <-t.reply: // it ended after its reply
		return reply.line, reply.wrong
	default:
	}
	<-written
	if k.used && left == n && ctx.Err() == nil {
		return nil, errLeft
	}
	hint := ""
	if left == n {
		hint = " before it had read its task, which is a line of its standard input with keepalive"
	}
	if err := k.failure(t.stderr, hint); err != nil || ctx.Err() != nil {
		return nil, err
	}
	if failed != nil {
		return nil, fmt.Errorf("the agent ended before it had read its task: %w", failed)
	}
	if len(t.printed) == 0 {
		return nil, errNoReply
	}
	return nil, fmt.Errorf("%w%s", errNoReply, t.instead())
}

// errLeft says that a process which had done tasks before ended, and had read nothing of this one.
var errLeft = errors.New("the agent ended between two tasks")

var errLongReply = agl.Errorf(agl.CodeInvalid, "reply of the agent: got a line of more than %d bytes, must be at most that; leave out what the reward does not need", maxResult)

var errNoReply = errors.New("the agent ended without a reply; one with keepalive reads a task from each line of its input, until its end")

var errClosedOutput = errors.New("the agent closed its standard output without a reply; with keepalive, a line of it is the reply to each task")

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
