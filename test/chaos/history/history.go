package history

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// Kind is the kind of a line of a history.
type Kind string

// The kinds of lines. Every call has at most one outcome. A call without an outcome counts
// as one whose outcome is unknown.
const (
	Call    Kind = "call"
	OK      Kind = "ok"
	Refused Kind = "refused" // the operation has not happened
	Unknown Kind = "unknown" // the operation may have happened
	Info    Kind = "info"    // an action on the servers
)

// Func names an operation.
type Func string

// The operations. Read, Wait and ReadSpans only read. The Final ones read once,
// after the end of the load.
const (
	Enqueue        Func = "enqueue"
	Dequeue        Func = "dequeue"
	Reserve        Func = "reserve"
	AddSpans       Func = "add_spans"
	Heartbeat      Func = "heartbeat"
	UpdateAttempt  Func = "update_attempt"
	UpdateRollout  Func = "update_rollout"
	Cancel         Func = "cancel"
	UpdateResource Func = "update_resources"
	Wait           Func = "wait"
	Read           Func = "read"
	ReadSpans      Func = "read_spans"
	Observe        Func = "observe" // an event of the store's stream, as an outcome without a call
	FinalRollout   Func = "final_rollout"
	FinalResources Func = "final_resources"
	Settings       Func = "settings"
	Down           Func = "down" // from before a server was killed until it served again
)

// Event is one line of a history.
type Event struct {
	Time    int64  `json:"time"` // nanoseconds since 1970
	Op      int    `json:"op"`   // joins a call and its outcome
	Process string `json:"process"`
	Kind    Kind   `json:"kind"`
	Func    Func   `json:"func"`
	Args    *Args  `json:"args,omitempty"`  // of a call
	Reply   *Reply `json:"reply,omitempty"` // of an operation that is ok
	Code    string `json:"code,omitempty"`  // of an error
	Error   string `json:"error,omitempty"`
}

// Args are the arguments of an operation that the rules need.
type Args struct {
	Tasks      []Task   `json:"tasks,omitempty"`
	Rollout    string   `json:"rollout,omitempty"`
	Rollouts   []string `json:"rollouts,omitempty"`
	Attempt    string   `json:"attempt,omitempty"`
	Worker     string   `json:"worker,omitempty"`
	Resources  string   `json:"resources,omitempty"`
	Status     string   `json:"status,omitempty"`
	Mark       int64    `json:"mark,omitzero"` // the unique value that an update wrote
	Limit      int      `json:"limit,omitzero"`
	Count      int      `json:"count,omitzero"`
	Spans      []Span   `json:"spans,omitempty"`
	StrictFIFO bool     `json:"strict_fifo,omitzero"` // of Settings: the queue is first in, first out
	EventLog   bool     `json:"event_log,omitzero"`   // of Settings: the events were observed without a gap
}

// Reply is the answer of an operation.
type Reply struct {
	Rollouts []Rollout `json:"rollouts,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`
	Spans    []Span    `json:"spans,omitempty"`
	First    int64     `json:"first,omitzero"`
	Version  int       `json:"version,omitzero"`
	Mark     int64     `json:"mark,omitzero"`
	Closed   bool      `json:"closed,omitzero"`
	Event    string    `json:"event,omitempty"` // the id of an event
}

// Task is a rollout to enqueue. Its id is part of the rollout's input.
type Task struct {
	ID          string   `json:"id"`
	MaxAttempts int      `json:"max_attempts"`
	Retry       []string `json:"retry,omitempty"`
	// Unresponsive and Timeout are the deadlines in nanoseconds; 0 is none.
	Unresponsive int64 `json:"unresponsive,omitzero"`
	Timeout      int64 `json:"timeout,omitzero"`
}

// Rollout is a rollout in an answer.
type Rollout struct {
	ID      string   `json:"id"`
	Task    string   `json:"task,omitempty"`
	Status  string   `json:"status,omitempty"`
	Mark    int64    `json:"mark,omitzero"`
	Attempt *Attempt `json:"attempt,omitempty"` // the latest one, or the claimed one
}

// Attempt is an attempt in an answer.
type Attempt struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	Status string `json:"status"`
	Start  int64  `json:"start"` // nanoseconds since 1970
	Worker string `json:"worker,omitempty"`
	Mark   int64  `json:"mark,omitzero"`
}

// Span is a span as it was sent or seen.
type Span struct {
	ID       string `json:"id"`
	Attempt  string `json:"attempt,omitempty"` // if it is not that of the call
	Sequence int64  `json:"sequence,omitzero"`
	Sum      uint32 `json:"sum,omitzero"` // a checksum of the content
	Reward   bool   `json:"reward,omitzero"`
}

// Recorder writes a history. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	out   *bufio.Writer
	ops   int
	err   error
	marks atomic.Int64
}

// NewRecorder returns a Recorder that writes to w. Call Flush at the end.
func NewRecorder(w io.Writer) *Recorder {
	return &Recorder{out: bufio.NewWriterSize(w, 1<<20)}
}

// Mark returns another number at each call.
func (r *Recorder) Mark() int64 { return r.marks.Add(1) }

// Do records the call of an operation and its outcome.
func (r *Recorder) Do(process string, f Func, args Args, op func() (Reply, error)) error {
	id := r.write(Event{Process: process, Kind: Call, Func: f, Args: &args})
	reply, err := op()
	e := Event{Op: id, Process: process, Kind: outcome(err), Func: f}
	if err == nil {
		e.Reply = &reply
	} else {
		e.Code, e.Error = string(code(err)), err.Error()
	}
	r.write(e)
	return err
}

// codeEnded is the code of an operation that ended with its context.
const codeEnded agl.Code = "ended"

func code(err error) agl.Code {
	if agl.IsContextError(err) {
		return codeEnded
	}
	return agl.ErrorCode(err)
}

// outcome classifies an error. A fault of the server may come after the commit.
func outcome(err error) Kind {
	switch code(err) {
	case "":
		return OK
	case codeEnded, agl.CodeUnavailable, agl.CodeExhausted, agl.CodeInternal:
		return Unknown
	default:
		return Refused
	}
}

// Saw records an event that a client received without a call.
func (r *Recorder) Saw(process string, f Func, args Args, reply Reply) {
	id := r.write(Event{Process: process, Kind: Call, Func: f, Args: &args})
	r.write(Event{Op: id, Process: process, Kind: OK, Func: f, Reply: &reply})
}

// Note records an action on the servers.
func (r *Recorder) Note(process, what string) {
	r.write(Event{Process: process, Kind: Info, Func: Func(what)})
}

// write writes the event with its time and, if it has none, a new operation id.
func (r *Recorder) write(e Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Op == 0 {
		r.ops++
		e.Op = r.ops
	}
	e.Time = time.Now().UnixNano()
	line, err := json.Marshal(&e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
	return e.Op
}

// Flush writes what is buffered and returns the first error of all writing.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.out.Flush())
}

// Op is an operation: a call with its outcome.
type Op struct {
	ID      int
	Process string
	Func    Func
	Kind    Kind // OK, Refused or Unknown
	Start   int64
	End     int64 // Forever if the outcome is unknown
	GaveUp  int64 // when the client gave up waiting; Forever if it never did
	Args    Args
	Reply   Reply
	Code    string
	Error   string
}

// Forever is a time after every operation.
const Forever = math.MaxInt64

func (o *Op) String() string {
	end := "…"
	if o.End != Forever {
		end = time.Unix(0, o.End).UTC().Format("15:04:05.000000")
	}
	call, _ := json.Marshal(&o.Args)
	reply, _ := json.Marshal(&o.Reply)
	return fmt.Sprintf("%s–%s %s %s %s %s → %s %s", time.Unix(0, o.Start).UTC().Format("15:04:05.000000"), end,
		o.Process, o.Func, call, o.Kind, reply, o.Error)
}

// Parse reads a history and joins its calls with their outcomes, in the order of the calls.
func Parse(r io.Reader) ([]*Op, error) {
	var ops []*Op
	open := map[int]*Op{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1<<20), 1<<28)
	for n := 1; lines.Scan(); n++ {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch e.Kind {
		case Info:
		case Call:
			if e.Args == nil {
				return nil, fmt.Errorf("line %d: a call without args", n)
			}
			o := &Op{ID: e.Op, Process: e.Process, Func: e.Func, Kind: Unknown, Start: e.Time, End: Forever, GaveUp: Forever, Args: *e.Args}
			ops = append(ops, o)
			open[e.Op] = o
		case OK, Refused, Unknown:
			o := open[e.Op]
			if o == nil {
				return nil, fmt.Errorf("line %d: the outcome of operation %d, which is not under way", n, e.Op)
			}
			delete(open, e.Op)
			o.Kind, o.Code, o.Error, o.GaveUp = e.Kind, e.Code, e.Error, e.Time
			if e.Kind != Unknown {
				o.End = e.Time
			}
			if e.Reply != nil {
				o.Reply = *e.Reply
			}
		default:
			return nil, fmt.Errorf("line %d: kind: got %q", n, e.Kind)
		}
	}
	return ops, lines.Err()
}
