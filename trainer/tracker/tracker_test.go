//go:build unix

package tracker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/trainer/tracker"
)

func TestFlatten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line string
		want []agl.RunMetrics
	}{
		{
			`{"step":3,"loss":-0.5,"resources_id":"rs","drift":{"kl":0.25,"ratio":[1,2]},"forms":{"plus":{"n":4}},"ok":true,"validation":null}`,
			[]agl.RunMetrics{{Step: 3, Values: map[string]float64{"loss": -0.5, "drift/kl": 0.25, "drift/ratio/0": 1, "drift/ratio/1": 2, "forms/plus/n": 4}}},
		},
		{`{"round":2}`, []agl.RunMetrics{{Step: 2, Values: map[string]float64{}}}},
		// Before the first step there are no numbers of training.
		{
			`{"step":0,"reward_mean":0,"loss":0,"seconds":{"validate":1.5},"validation":{"pass_rate":0.25}}`,
			[]agl.RunMetrics{{Step: 0, Values: map[string]float64{"seconds/validate": 1.5, "validation/pass_rate": 0.25}}},
		},
		// A validation that ran beside training is that of its step.
		{
			`{"step":7,"loss":1,"beside":{"step":5,"validation":{"pass_rate":0.5},"seconds":2},"validation":{"pass_rate":0.75}}`,
			[]agl.RunMetrics{{Step: 5, Values: map[string]float64{"validation/pass_rate": 0.5}}, {Step: 7, Values: map[string]float64{"loss": 1, "validation/pass_rate": 0.75}}},
		},
	} {
		got, err := tracker.Flatten([]byte(tc.line))
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", tc.line, err, diff)
		}
	}
	for _, bad := range []string{`{"loss":1}`, `[1]`, `{"step":"1"}`, `{`} {
		if _, err := tracker.Flatten([]byte(bad)); err == nil {
			t.Errorf("%s is no error", bad)
		}
	}
}

// The framing of records is checked here; that TensorBoard reads what is in them is a test of test/trackers.
func TestTensorBoardRecords(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "b")
	for range 2 { // a second process of a run has a file of its own
		board, err := tracker.NewTensorBoard(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(board.Log(t.Context(), []agl.RunMetrics{{Step: 1, Values: map[string]float64{"loss": 0.5}}}), board.Close(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files %v (%v), want 2", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := func(b []byte) uint32 {
		crc := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (crc>>15 | crc<<17) + 0xa282ead8
	}
	records := 0
	for ; len(data) > 0; records++ {
		n := binary.LittleEndian.Uint64(data)
		if binary.LittleEndian.Uint32(data[8:]) != sum(data[:8]) || binary.LittleEndian.Uint32(data[12+n:]) != sum(data[12:12+n]) {
			t.Fatalf("record %d has a wrong checksum", records)
		}
		data = data[16+n:]
	}
	if records != 3 {
		t.Errorf("%d records, want the version, the start and a step", records)
	}
}

// A validation of an earlier step in the first line of a run that resumes drops no numbers of that step.
func TestTensorBoardResumedBeside(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	board, err := tracker.NewTensorBoard(folder)
	if err != nil {
		t.Fatal(err)
	}
	set := tracker.NewSet(slog.New(slog.DiscardHandler), board)
	for _, line := range []string{`{"step":6,"loss":1,"beside":{"step":5,"validation":{"pass_rate":0.5}}}`, `{"step":7,"loss":1}`} {
		set.Line(t.Context(), []byte(line))
	}
	set.Close(t.Context(), nil)
	files, err := filepath.Glob(filepath.Join(folder, "events.out.tfevents.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v (%v), want 1", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var steps []uint64
	const fieldStep, fieldSession = 2, 7
	for len(data) > 0 {
		event := data[12 : 12+binary.LittleEndian.Uint64(data)]
		data = data[16+len(event):]
		var step uint64
		session := false
		for len(event) > 0 {
			number, _, n := protowire.ConsumeField(event)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			if number == fieldStep {
				step, _ = protowire.ConsumeVarint(event[protowire.SizeTag(number):])
			}
			session = session || number == fieldSession
			event = event[n:]
		}
		if session {
			steps = append(steps, step)
		}
	}
	if !slices.Equal(steps, []uint64{6}) {
		t.Errorf("sessions start with steps %v, want 6: what there is of 5 is kept", steps)
	}
}

// failing is a tracker that is away.
type failing struct{ calls int }

func (f *failing) Log(context.Context, []agl.RunMetrics) error {
	f.calls++
	return errors.New("the server is away")
}

func (*failing) Close(context.Context, error) error { return errors.New("still away") }

// A tracker that is away neither ends the run nor fills the log.
func TestSetReportsOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	away := &failing{}
	set := tracker.NewSet(slog.New(slog.NewTextHandler(&log, nil)), away)
	for range 3 {
		set.Line(t.Context(), []byte(`{"step":1,"loss":1}`))
	}
	set.Close(t.Context(), nil)
	if n := strings.Count(log.String(), "the server is away"); n != 1 || away.calls != 3 || !strings.Contains(log.String(), "still away") {
		t.Errorf("%d calls, log:\n%s", away.calls, log.String())
	}
}

// patient is a tracker that has what it was given before its context ended.
type patient struct{ steps []int }

func (p *patient) Log(ctx context.Context, line []agl.RunMetrics) error {
	if ctx.Err() == nil {
		p.steps = append(p.steps, line[0].Step)
	}
	return ctx.Err()
}

func (*patient) Close(context.Context, error) error { return nil }

// The line of a step that ended as the run was interrupted is tracked: the run that resumes does not make the step again.
func TestSetInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var log bytes.Buffer
	kept := &patient{}
	tracker.NewSet(slog.New(slog.NewTextHandler(&log, nil)), kept).Line(ctx, []byte(`{"step":3,"loss":1}`))
	if !slices.Equal(kept.steps, []int{3}) || log.Len() > 0 {
		t.Errorf("steps %v, log:\n%s", kept.steps, log.String())
	}
}

// A run that two signals have cut off has lost its store on purpose: trackers that cannot close say nothing. A single signal
// leaves them the time to close.
func TestSetForced(t *testing.T) { //nolint:paralleltest // the signals are for the process
	ctx, stop := execution.NotifyContext(t.Context())
	defer stop()
	var log bytes.Buffer
	for _, ended := range []<-chan struct{}{ctx.Done(), execution.Forced(ctx)} {
		if log.Reset(); syscall.Kill(os.Getpid(), syscall.SIGINT) != nil {
			t.Fatal("the process got no signal")
		}
		<-ended
		set := tracker.NewSet(slog.New(slog.NewTextHandler(&log, nil)), &failing{})
		set.Close(context.WithoutCancel(ctx), context.Cause(ctx))
		if forced := ended != ctx.Done(); strings.Contains(log.String(), "still away") == forced {
			t.Errorf("forced %v: log %q", forced, log.String())
		}
	}
}
