package display

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"
)

func TestChart(t *testing.T) {
	t.Parallel()
	const want = "" +
		"1.0 ┤⠀⠈\n" +
		"0.0 ┤⡠⠂\n" +
		"    └──\n" +
		"     steps 3 to 6\n"
	if got := chart(3, []float64{0, 0.2, 0.3, 1}, 10, 2); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	long := make([]float64, 1000)
	for line := range strings.SplitSeq(chart(1, long, 20, 4), "\n") {
		if n := len([]rune(line)); n > 25 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if Chart(1, nil) != "" {
		t.Error("a chart of nothing is not empty")
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]Tokens{
		"3 tokens (2 prompt, 1 completion) in 1 call":            {Calls: 1, Prompt: 2, Completion: 1},
		"1 234 tokens (1 000 prompt, 234 completion) in 2 calls": {Calls: 2, Prompt: 1000, Completion: 234},
	} {
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPlainPrintsLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		tokens := Tokens{}
		d := New(false, Options{Out: &out, Tokens: func() Tokens { return tokens }})
		d.Update(Update{Rows: []Row{{Label: "steps", Total: 2}}})
		d.Update(Update{Line: "step 1/2"})
		tokens = Tokens{Calls: 2, Prompt: 1000, Completion: 234}
		time.Sleep(time.Minute)
		d.Update(Update{Line: "step 2/2"})
		d.Notice("warning: look here")
		d.Close()
		if want := "step 1/2  0.0s\nstep 2/2  1 234 tokens  60.0s\nwarning: look here\n"; out.String() != want {
			t.Errorf("printed\n%s, want\n%s", out.String(), want)
		}
	})
}

func TestViewDraws(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := newLive(Options{Out: &out, Began: time.Now()})
		d.Update(Update{Rows: []Row{{Label: "steps", Done: 4, Total: 20, Timed: true}, {Label: "rollouts"}}})
		time.Sleep(time.Minute) // of a warm start
		d.Update(Update{Rows: []Row{{Label: "steps", Done: 4, Total: 20, Timed: true}, {Label: "rollouts", Done: 64, Total: 128, Text: "of training"}}})
		time.Sleep(10 * time.Second)
		d.Update(Update{Line: "step 6/20", Rows: []Row{{Label: "steps", Done: 6, Total: 20, Timed: true}, {Label: "reward", Text: "0.50"}}})
		d.Notice("warning: all groups are equal")
		time.Sleep(redraw)
		synctest.Wait()
		want := []string{
			"steps       █████████░░░░░░░░░░░░░░░░░░░░░ 6/20  1m10s so far, about 1m11s left",
			"rollouts    ███████████████░░░░░░░░░░░░░░░ 64/128  of training",
			"reward      0.50",
			"warning: all groups are equal",
		}
		if !slices.Equal(plainLines(d.drawn), want) {
			t.Errorf("drawn is\n%s", strings.Join(plainLines(d.drawn), "\n"))
		}
		if written := ansi.Strip(out.String()); !strings.HasSuffix(written, "\r"+strings.Join(want, "\n")+"\n") {
			t.Errorf("written last is not what was drawn last: %q", written)
		}
		d.Update(Update{Rows: []Row{{Label: "steps", Done: 20, Total: 20, Timed: true}}})
		time.Sleep(time.Minute)
		d.Close()
		if got := ansi.Strip(d.drawn[0]); !strings.HasSuffix(got, "20/20  done after 1m10s") {
			t.Errorf("the time of what is done goes on: %s", got)
		}
	})
}

func plainLines(lines []string) []string {
	return strings.Split(ansi.Strip(strings.Join(lines, "\n")), "\n")
}

// Lines of a log appear above the rows, and as they are when the view has ended.
func TestLogAboveTheView(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out, log bytes.Buffer
		l := NewLog(&log)
		d := newLive(Options{Out: &out, Log: l})
		d.Update(Update{Rows: []Row{{Label: "reward", Text: "0.50"}}})
		time.Sleep(redraw)
		synctest.Wait()
		out.Reset()
		fmt.Fprintln(l, "a warning")
		if got := out.String(); !strings.Contains(got, ansi.CUU1+ansi.EraseEntireLine+"a warning\n") || strings.Count(got, ansi.CUU1) != 1 || !strings.Contains(got, "0.50\n") {
			t.Errorf("written %q", got)
		}
		out.Reset()
		d.Close()
		fmt.Fprintln(l, "later")
		if out.Len() > 0 || log.String() != "later\n" {
			t.Errorf("written %q, logged %q", out.String(), log.String())
		}
	})
}

// Nothing is drawn while the terminal is being resized, and nothing is lost by that.
func TestViewWaitsForTheSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLog(io.Discard)
		d := newLive(Options{Out: &out, Log: l})
		var width atomic.Int32
		width.Store(80)
		d.mu.Lock()
		d.size = func() (int, int, error) { return int(width.Load()), 24, nil }
		d.mu.Unlock()
		d.Update(Update{Rows: []Row{{Label: "reward", Text: strings.Repeat("0.50 ", 12)}}})
		time.Sleep(settled)
		synctest.Wait()
		out.Reset()
		for width.Add(-1) > 40 { // each time before the last size has settled
			fmt.Fprintln(l, width.Load())
			time.Sleep(settled - redraw)
		}
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("written during the resize: %q", out.String())
		}
		d.Close()
		if got := out.String(); strings.Count(got, ansi.CUU1) != 2 || !strings.Contains(got, "79\n78\n77\n") || !strings.Contains(got, "…\n") {
			t.Errorf("written after the resize: %q", got)
		}
	})
}

// What a terminal has wrapped when it became narrower is erased too, and nothing else.
func TestFrameErasesWrappedRows(t *testing.T) {
	t.Parallel()
	old := []string{strings.Repeat("x", 80), "", strings.Repeat("日", 30), strings.Repeat("\x1b[1my\x1b[m", 40)}
	for width, want := range map[int]int{0: 4, 120: 4, 80: 4, 79: 5, 60: 5, 59: 6, 40: 6, 39: 8} {
		if got := strings.Count(frame(old, []string{"new"}, "", width), ansi.CUU1); got != want {
			t.Errorf("at width %d %d rows are erased, want %d", width, got, want)
		}
	}
}

// The view never exceeds the terminal, whatever happens.
func TestViewFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{40, 10}, {80, 24}, {200, 50}, {10, 2}} {
		width, height := size[0], size[1]
		v := newView(Options{Began: time.Now(), Tokens: func() Tokens { return Tokens{12, 34_567, 8_901} }})
		v.width, v.height = width, height
		for i := range 12 {
			v.rows = replace(v.rows, Row{Label: fmt.Sprint("row ", i), Done: i, Total: 12, Timed: true, Text: strings.Repeat("text ", 20)})
			v.notices = append(v.notices, fmt.Sprintf("notice %d: %s", i, strings.Repeat("look here ", 9)))
			lines := v.lines()
			if len(lines) >= height {
				t.Errorf("%d lines in a terminal of %d", len(lines), height)
			}
			for _, line := range lines {
				if w := ansi.StringWidth(line); w > width {
					t.Errorf("%d columns in a terminal of %d: %q", w, width, line)
				}
			}
		}
		text := ansi.Strip(strings.Join(v.lines(), "\n"))
		if height > 2 && (!strings.Contains(text, "row 0") || !strings.Contains(text, "here")) {
			t.Errorf("at %v the view lacks rows or notices:\n%s", size, text)
		}
		if width >= 80 && !strings.Contains(text, "notice 11") {
			t.Errorf("at %v the view lacks the newest notice:\n%s", size, text)
		}
	}
}
