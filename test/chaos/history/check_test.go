package history

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
)

const (
	millisecond = int64(1e6)
	second      = int64(1e9)
)

// book is a history made by hand. Every operation takes a millisecond, and the
// next one begins a millisecond later.
type book struct {
	ops   []*Op
	clock int64
}

func (b *book) do(process string, f Func, args Args, reply Reply) *Op {
	o := &Op{
		ID: len(b.ops) + 1, Process: process, Func: f, Kind: OK,
		Start: b.clock, End: b.clock + millisecond, GaveUp: b.clock + millisecond, Args: args, Reply: reply,
	}
	b.clock += 2 * millisecond
	b.ops = append(b.ops, o)
	return o
}

// nth is the n-th operation of a kind, from 1.
func (b *book) nth(f Func, n int) *Op {
	for _, o := range b.ops {
		if o.Func == f {
			if n--; n == 0 {
				return o
			}
		}
	}
	panic("no such operation")
}

func (b *book) drop(o *Op) {
	b.ops = slices.DeleteFunc(b.ops, func(p *Op) bool { return p == o })
}

// lose makes the answer of an operation unknown.
func lose(o *Op) {
	o.Kind, o.End, o.Reply, o.Code = Unknown, Forever, Reply{}, string(agl.CodeUnavailable)
}

func attempt(id string, number int, status agl.AttemptStatus, start int64) *Attempt {
	return &Attempt{ID: id, Number: number, Status: string(status), Start: start, Worker: "w"}
}

// good is the history of a store that did everything right: ro-1 succeeds,
// ro-2's first attempt falls silent and its second one succeeds, ro-3 is
// cancelled in the queue.
func good() *book {
	b := &book{clock: 1000 * second}
	b.do("load", Settings, Args{StrictFIFO: true, EventLog: true}, Reply{})
	task := func(id string) Task {
		return Task{ID: id, MaxAttempts: 2, Retry: []string{"unresponsive"}, Unresponsive: second}
	}
	b.do("algorithm", UpdateResource, Args{Resources: "rs", Mark: 1}, Reply{Version: 1})
	b.do("algorithm", UpdateResource, Args{Resources: "rs", Mark: 2}, Reply{Version: 2})
	b.do("algorithm", Enqueue, Args{Tasks: []Task{task("t-1"), task("t-2")}},
		Reply{Rollouts: []Rollout{{ID: "ro-1", Task: "t-1"}, {ID: "ro-2", Task: "t-2"}}})
	a1, a2 := b.claim("ro-1", "at-1", 1), b.claim("ro-2", "at-2", 1)
	b.do("w", Dequeue, Args{Worker: "w", Limit: 1}, Reply{})
	b.do("algorithm", Enqueue, Args{Tasks: []Task{task("t-3")}}, Reply{Rollouts: []Rollout{{ID: "ro-3", Task: "t-3"}}})
	b.do("algorithm", Cancel, Args{Rollout: "ro-3"}, Reply{})
	b.do("w", Reserve, Args{Rollout: "ro-1", Attempt: "at-1", Count: 2}, Reply{First: 1})
	b.do("w", AddSpans, Args{Rollout: "ro-1", Attempt: "at-1", Spans: []Span{{ID: "a", Sequence: 1, Sum: 7}, {ID: "b", Sequence: 2, Sum: 8}}},
		Reply{Spans: []Span{{ID: "a", Sequence: 1}, {ID: "b", Sequence: 2}}})
	b.do("w", AddSpans, Args{Rollout: "ro-1", Attempt: "at-1", Spans: []Span{{ID: "r", Sum: 9, Reward: true}}},
		Reply{Spans: []Span{{ID: "r", Sequence: 3}}})
	b.do("w", UpdateAttempt, Args{Rollout: "ro-1", Attempt: "at-1", Status: "succeeded", Mark: 3}, Reply{})
	b.do("algorithm", UpdateRollout, Args{Rollout: "ro-1", Mark: 4}, Reply{})
	b.do("algorithm", Wait, Args{Rollouts: []string{"ro-1"}}, Reply{Rollouts: []Rollout{{ID: "ro-1", Status: "succeeded"}}})
	spans := []Span{
		{Attempt: "at-1", ID: "a", Sequence: 1, Sum: 7}, {Attempt: "at-1", ID: "b", Sequence: 2, Sum: 8},
		{Attempt: "at-1", ID: "r", Sequence: 3, Sum: 9, Reward: true},
	}
	b.do("algorithm", ReadSpans, Args{Rollout: "ro-1"}, Reply{Spans: slices.Clone(spans)})
	b.clock += 2 * second // at-2 is silent
	a3 := b.claim("ro-2", "at-3", 2)
	b.do("w", UpdateAttempt, Args{Rollout: "ro-2", Attempt: "at-2", Status: "failed", Mark: 5}, Reply{}) // too late to count
	b.do("w", UpdateAttempt, Args{Rollout: "ro-2", Attempt: "at-3", Status: "succeeded", Mark: 6}, Reply{})
	for i, e := range []struct{ rollout, attempt, status string }{
		{"ro-1", "", "queuing"}, {"ro-2", "", "queuing"}, {"ro-1", "", "preparing"}, {"ro-1", "at-1", "preparing"},
		{"ro-2", "", "preparing"}, {"ro-2", "at-2", "preparing"}, {"ro-3", "", "queuing"}, {"ro-3", "", "cancelled"},
		{"ro-1", "", "running"}, {"ro-1", "at-1", "running"}, {"ro-1", "", "succeeded"}, {"ro-1", "at-1", "succeeded"},
		{"ro-2", "", "requeuing"}, {"ro-2", "at-2", "unresponsive"}, {"ro-2", "", "preparing"}, {"ro-2", "at-3", "preparing"},
		{"ro-2", "at-2", "failed"}, {"ro-2", "", "succeeded"}, {"ro-2", "at-3", "succeeded"},
	} {
		b.do("watcher", Observe, Args{Rollout: e.rollout, Attempt: e.attempt, Status: e.status}, Reply{Event: string(rune('a' + i))})
	}
	a1.Status, a1.Mark, a2.Status, a2.Mark, a3.Status, a3.Mark = "succeeded", 3, "failed", 5, "succeeded", 6
	b.final(Rollout{ID: "ro-1", Task: "t-1", Status: "succeeded", Mark: 4}, spans, *a1)
	b.final(Rollout{ID: "ro-2", Task: "t-2", Status: "succeeded"}, nil, *a2, *a3)
	b.final(Rollout{ID: "ro-3", Task: "t-3", Status: "cancelled"}, nil)
	b.do("final", FinalResources, Args{Resources: "rs"}, Reply{Version: 2, Mark: 2})
	return b
}

func (b *book) claim(rollout, id string, number int) *Attempt {
	a := attempt(id, number, agl.AttemptPreparing, b.clock)
	b.do("w", Dequeue, Args{Worker: "w", Limit: 1}, Reply{Rollouts: []Rollout{{ID: rollout, Status: "preparing", Attempt: a}}})
	after := *a
	return &after
}

func (b *book) final(r Rollout, spans []Span, attempts ...Attempt) {
	b.do("final", FinalRollout, Args{Rollout: r.ID}, Reply{Rollouts: []Rollout{r}, Attempts: attempts, Spans: spans})
}

func TestCheckGood(t *testing.T) {
	t.Parallel()
	report := Check(good().ops)
	for _, v := range report.Violations {
		t.Error(v)
	}
	report.Violations = nil
	if diff := cmp.Diff(Report{Rollouts: 3, Attempts: 3, Spans: 3, Ordered: 2}, report); diff != "" {
		t.Error(diff)
	}
}

// TestCheckLost loses only answers of a good history. It must still be good, because an
// operation whose answer is lost may have happened.
func TestCheckLost(t *testing.T) {
	t.Parallel()
	for _, f := range []Func{Enqueue, Dequeue, Reserve, AddSpans, UpdateAttempt, UpdateRollout, UpdateResource, Cancel, Wait} {
		b := good()
		for _, o := range b.ops {
			if o.Func == f {
				lose(o)
			}
		}
		for _, v := range Check(b.ops).Violations {
			t.Errorf("without answers of %s: %s", f, v)
		}
	}
}

func TestCheckBad(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		rule  string
		what  string // in the violation
		spoil func(b *book)
	}{
		{"a refusal", "faults", "not found", func(b *book) {
			o := b.do("w", Heartbeat, Args{Worker: "w"}, Reply{})
			o.Kind, o.Code, o.Error = Refused, "not_found", "not found"
		}},
		{"a server's fault", "faults", "boom", func(b *book) {
			o := b.do("w", Heartbeat, Args{Worker: "w"}, Reply{})
			o.Kind, o.Code, o.Error = Unknown, "internal", "boom"
		}},
		{"a rollout is gone", "enqueued", "ro-3 is gone", func(b *book) { b.drop(b.nth(FinalRollout, 3)) }},
		{"a rollout is another", "enqueued", `was task "t-3" and is "t-4"`, func(b *book) { b.nth(FinalRollout, 3).Reply.Rollouts[0].Task = "t-4" }},
		{"a rollout from nowhere", "enqueued", `nobody has sent task "t-9"`, func(b *book) {
			b.final(Rollout{ID: "ro-9", Task: "t-9", Status: "cancelled"}, nil)
		}},
		{"a task twice", "enqueued", "became two rollouts", func(b *book) {
			b.final(Rollout{ID: "ro-9", Task: "t-3", Status: "cancelled"}, nil)
		}},
		{"a claim is gone", "claimed", "at-3, number 2, was handed out and is gone", func(b *book) {
			final := b.nth(FinalRollout, 2)
			final.Reply.Attempts = final.Reply.Attempts[:1]
		}},
		{"two attempts of one number", "claimed", "both are number 1", func(b *book) { b.nth(FinalRollout, 2).Reply.Attempts[1].Number = 1 }},
		{"an attempt is missing", "claimed", "2 attempts, and one is number 3", func(b *book) { b.nth(FinalRollout, 2).Reply.Attempts[1].Number = 3 }},
		{"a claim twice", "claimed", "handed out twice", func(b *book) {
			b.do("w", Dequeue, Args{Worker: "w"}, Reply{Rollouts: []Rollout{{ID: "ro-1", Attempt: attempt("at-1", 1, "preparing", b.clock)}}})
		}},
		{"a claim that nobody asked for", "claimed", "nobody has asked for attempt at-9", func(b *book) {
			final := b.nth(FinalRollout, 2)
			final.Reply.Attempts = append(final.Reply.Attempts, *attempt("at-9", 3, "failed", b.clock))
		}},
		{"two live attempts", "live", "at-3 was begun while attempt at-2", func(b *book) {
			b.nth(Enqueue, 1).Args.Tasks[1].Unresponsive = 10 * second
		}},
		{"a span is gone", "spans", "span b of attempt at-1 was stored and is gone", func(b *book) {
			final := b.nth(FinalRollout, 1)
			final.Reply.Spans = slices.Delete(final.Reply.Spans, 1, 2)
		}},
		{"a span is gone for a moment", "spans", "span b of attempt at-1 was stored and is gone", func(b *book) {
			read := b.nth(ReadSpans, 1)
			read.Reply.Spans = slices.Delete(read.Reply.Spans, 1, 2)
		}},
		{"a span is another", "spans", "is not what was sent", func(b *book) { b.nth(FinalRollout, 1).Reply.Spans[0].Sum++ }},
		{"a span twice", "spans", "is there twice", func(b *book) {
			final := b.nth(FinalRollout, 1)
			final.Reply.Spans = append(final.Reply.Spans, final.Reply.Spans[0])
		}},
		{"a span from nowhere", "spans", "nobody has sent span z", func(b *book) {
			final := b.nth(FinalRollout, 1)
			final.Reply.Spans = append(final.Reply.Spans, Span{Attempt: "at-1", ID: "z", Sequence: 9})
		}},
		{"a span under another sequence id", "spans", "was sent with sequence id 1 and has 4", func(b *book) { b.nth(FinalRollout, 1).Reply.Spans[0].Sequence = 4 }},
		{"a span's issued sequence id changes", "spans", "was given sequence id 3 and has 4", func(b *book) { b.nth(FinalRollout, 1).Reply.Spans[2].Sequence = 4 }},
		{"an attempt's update is gone", "updates", "3 was written and 0 is there", func(b *book) { b.nth(FinalRollout, 1).Reply.Attempts[0].Mark = 0 }},
		{"a rollout's update is undone", "updates", "7 was written and 4 is there", func(b *book) {
			b.ops = slices.Insert(b.ops, slices.Index(b.ops, b.nth(Wait, 1)), &Op{
				Func: UpdateRollout, Kind: OK, Start: b.nth(Wait, 1).Start, End: b.nth(Wait, 1).End, Args: Args{Rollout: "ro-1", Mark: 7},
			})
		}},
		{"an update from nowhere", "updates", "nobody has written 99", func(b *book) { b.nth(FinalRollout, 1).Reply.Rollouts[0].Mark = 99 }},
		{"a version is gone", "resources", "version 2 was given and 1 is there", func(b *book) { b.nth(FinalResources, 1).Reply.Version = 1 }},
		{"a version twice", "resources", "version 1 was given twice", func(b *book) { b.nth(UpdateResource, 2).Reply.Version = 1 }},
		{"versions fall", "resources", "version 1 came after 2", func(b *book) {
			b.nth(UpdateResource, 1).Reply.Version, b.nth(UpdateResource, 2).Reply.Version = 2, 1
		}},
		{"a version too many", "resources", "2 updates made 3 versions", func(b *book) { b.nth(FinalResources, 1).Reply.Version = 3 }},
		{"resources are gone", "resources", "are gone", func(b *book) { b.drop(b.nth(FinalResources, 1)) }},
		{"old content under a new version", "resources", "2 was written and 1 is there", func(b *book) { b.nth(FinalResources, 1).Reply.Mark = 1 }},
		{"a sequence id reserved twice", "sequence ids", "sequence id 2 was reserved twice", func(b *book) {
			b.do("w", Reserve, Args{Rollout: "ro-1", Count: 1}, Reply{First: 2})
		}},
		{"a sequence id of two spans", "sequence ids", "have the sequence id 2", func(b *book) {
			b.nth(FinalRollout, 1).Reply.Spans[2].Sequence = 2
		}},
		{"a reserved sequence id is issued", "sequence ids", "sequence id 3 was reserved and given", func(b *book) {
			b.nth(Reserve, 1).Args.Count = 3
		}},
		{"sequence ids fall", "sequence ids", "sequence id 0 was given after 3", func(b *book) {
			b.do("w", Reserve, Args{Rollout: "ro-1", Count: 1}, Reply{First: 0})
		}},
		{"a reward twice", "rewards", "at-1 has 2 rewards", func(b *book) { b.nth(FinalRollout, 1).Reply.Spans[0].Reward = true }},
		{"a finished rollout comes back", "completed", "ro-1 came back", func(b *book) {
			b.do("watcher", Observe, Args{Rollout: "ro-1", Status: "running"}, Reply{Event: "y"})
		}},
		{"more done than asked for", "completed", "4 rollouts were completed, 3 enqueued", func(b *book) {
			b.final(Rollout{ID: "ro-9", Task: "t-9", Status: "cancelled"}, nil)
		}},
		{"a rollout is stuck", "stuck", "ro-3 is queuing at the end", func(b *book) { b.nth(FinalRollout, 3).Reply.Rollouts[0].Status = "queuing" }},
		{"an event twice", "events", "event a came twice", func(b *book) { b.nth(Observe, 2).Reply.Event = "a" }},
		{"a rollout's last event is missing", "events", "rollout ro-2: the last event says preparing", func(b *book) { b.drop(b.nth(Observe, 18)) }},
		{"an attempt's last event is missing", "events", "attempt at-2 of rollout ro-2: the last event says unresponsive", func(b *book) { b.drop(b.nth(Observe, 17)) }},
		{"no event of an attempt", "events", "attempt at-1 of rollout ro-1: no event", func(b *book) {
			b.ops = slices.DeleteFunc(b.ops, func(o *Op) bool { return o.Func == Observe && o.Args.Attempt == "at-1" })
		}},
		{"no event of a rollout", "events", "rollout ro-3: no event", func(b *book) { b.drop(b.nth(Observe, 7)); b.drop(b.nth(Observe, 7)) }},
		{"a gap of events", "events", "began anew", func(b *book) { b.do("watcher", Observe, Args{Status: "reset"}, Reply{Event: "y"}) }},
		{"last in, first out", "order", "ro-2 was queued behind ro-1", func(b *book) {
			one, two := b.nth(Dequeue, 1), b.nth(Dequeue, 2)
			one.Reply, two.Reply = two.Reply, one.Reply
		}},
		{"overtaken by a later one", "order", "ro-3 was queued after ro-1", func(b *book) {
			b.drop(b.nth(Cancel, 1))
			b.nth(Enqueue, 2).Start, b.nth(Enqueue, 2).End = b.nth(Enqueue, 1).End+1, b.nth(Enqueue, 1).End+2
			b.nth(Dequeue, 1).Start += 100 * millisecond
			b.nth(Dequeue, 1).End += 100 * millisecond
			b.claim("ro-3", "at-9", 1)
			b.nth(Dequeue, 5).Start, b.nth(Dequeue, 5).End = b.nth(Enqueue, 1).End+3, b.nth(Enqueue, 1).End+4
		}},
		{"an empty queue that is not", "order", "found nothing while rollout ro-2 was queued", func(b *book) {
			empty := b.nth(Dequeue, 3)
			empty.Start, empty.End = b.nth(Enqueue, 1).End+1, b.nth(Dequeue, 1).Start-1
		}},
		{"a status that nothing explains", "lifecycle", "ro-2", func(b *book) { b.nth(FinalRollout, 2).Reply.Rollouts[0].Status = "failed" }},
		{"a claim before its deadline", "lifecycle", "ro-2", func(b *book) {
			b.nth(Enqueue, 1).Args.Tasks[1].Unresponsive = 10 * second
		}},
		{"a late result counts", "lifecycle", "ro-2", func(b *book) {
			b.drop(b.nth(UpdateAttempt, 3))
		}},
		{"cancelling is not final", "lifecycle", "ro-3", func(b *book) {
			b.do("algorithm", Read, Args{Rollout: "ro-3"}, Reply{Rollouts: []Rollout{{ID: "ro-3", Status: "queuing"}}})
		}},
		{"a wait that returns too early", "lifecycle", "ro-1", func(b *book) {
			wait := b.nth(Wait, 1)
			wait.Start, wait.End = b.nth(Reserve, 1).Start, b.nth(Reserve, 1).End
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := good()
			test.spoil(b)
			var found []string
			for _, v := range Check(b.ops).Violations {
				if v.Rule == test.rule && strings.Contains(v.String(), test.what) {
					return
				}
				found = append(found, v.String())
			}
			t.Errorf("no violation of %q with %q; found: %s", test.rule, test.what, strings.Join(found, "\n"))
		})
	}
}

// TestOrderLost has a rollout that a dequeue without an answer may have claimed. It says
// nothing about the order, unless the server of the dequeue was down before the rollout was
// enqueued.
func TestOrderLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		down    bool
		ordered int
	}{{"it may have been claimed", false, 0}, {"the server was down", true, 2}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := good()
			before := b.nth(Enqueue, 1).Start
			lost := &Op{Func: Dequeue, Kind: Unknown, Start: before - 4*millisecond, End: Forever, GaveUp: before - 3*millisecond}
			b.ops = append([]*Op{lost}, b.ops...)
			if test.down {
				b.ops = append(b.ops, &Op{Func: Down, Kind: OK, Start: before - 4*millisecond, End: before - 1})
			}
			report := Check(b.ops)
			if len(report.Violations) > 0 || report.Ordered != test.ordered {
				t.Errorf("got %v, want %d ordered", report, test.ordered)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	r := NewRecorder(&file)
	args := Args{Rollout: "ro-1", Attempt: "at-1", Status: "succeeded", Mark: r.Mark()}
	failures := []error{
		nil,
		agl.Errorf(agl.CodeNotFound, "no"),
		agl.Errorf(agl.CodeUnavailable, "away"),
		errors.New("a fault"),
		nil,
	}
	for _, failure := range failures {
		if err := r.Do("w", UpdateAttempt, args, func() (Reply, error) { return Reply{Version: 3}, failure }); !errors.Is(err, failure) {
			t.Errorf("got %v, want %v", err, failure)
		}
	}
	r.Note("nemesis", "kill")
	r.Saw("watcher", Observe, Args{Rollout: "ro-1"}, Reply{Event: "7"})
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	ops, err := Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []Kind
	for _, o := range ops {
		kinds = append(kinds, o.Kind)
		if (o.End == Forever) != (o.Kind == Unknown) || o.GaveUp == Forever {
			t.Errorf("%v: from %d to %d, given up at %d", o, o.Start, o.End, o.GaveUp)
		}
	}
	if diff := cmp.Diff([]Kind{OK, Refused, Unknown, Unknown, OK, OK}, kinds); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(args, ops[0].Args); diff != "" {
		t.Error(diff)
	}
	if ops[0].Reply.Version != 3 || ops[5].Reply.Event != "7" {
		t.Errorf("replies: %v, %v", ops[0], ops[5])
	}
}

func TestParseBad(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"kind":"call","op":1}`,
		`{"kind":"ok","op":1}`,
		`{"kind":"what","op":1}`,
		`{"kind":`,
	} {
		if _, err := Parse(strings.NewReader(text + "\n")); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	// A history whose writer was killed ends with an open call.
	ops, err := Parse(strings.NewReader(`{"time":5,"op":1,"kind":"call","func":"cancel","args":{"rollout":"ro-1"}}` + "\n"))
	if err != nil || len(ops) != 1 || ops[0].Kind != Unknown || ops[0].End != Forever {
		t.Errorf("got %v, %v", ops, err)
	}
}
