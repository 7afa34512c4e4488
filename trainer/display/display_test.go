package display

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
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

func TestPlainPrintsLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tokens := Tokens{}
	d := New(false, Options{Out: &out, Tokens: func() Tokens { return tokens }})
	d.Update(Update{Rows: []Row{{Label: "steps", Total: 2}}})
	d.Update(Update{Line: "step 1/2"})
	tokens = Tokens{Calls: 2, Prompt: 1000, Completion: 234}
	d.Update(Update{Line: "step 2/2"})
	d.Notice("warning: look here")
	d.Close()
	if want := "step 1/2  0.0s\nstep 2/2  1 234 tokens  0.0s\nwarning: look here\n"; out.String() != want {
		t.Errorf("printed\n%s, want\n%s", out.String(), want)
	}
}

// The live view depends on its messages alone, so that it can be tested without a terminal.
func TestViewDraws(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var model tea.Model = newView(Options{Began: began})
		send := func(msg any) { model, _ = model.Update(msg) }
		send(Update{Rows: []Row{{Label: "steps", Done: 4, Total: 20, Timed: true}, {Label: "rollouts"}}})
		time.Sleep(time.Minute) // of a warm start
		send(Update{Rows: []Row{{Label: "steps", Done: 4, Total: 20, Timed: true}, {Label: "rollouts", Done: 64, Total: 128, Text: "of training"}}})
		time.Sleep(10 * time.Second)
		send(Update{Line: "step 6/20", Rows: []Row{{Label: "steps", Done: 6, Total: 20, Timed: true}, {Label: "reward", Text: "0.50"}}})
		send(noticeMsg("warning: all groups are equal"))
		send(tickMsg(time.Now()))
		text := model.(view).View().Content
		for _, want := range []string{"6/20", "1m10s so far, about 1m10s left", "64/128", "of training", "0.50", "warning: all groups are equal"} {
			if !strings.Contains(text, want) {
				t.Errorf("the view lacks %q:\n%s", want, text)
			}
		}
		send(Update{Rows: []Row{{Label: "steps", Done: 20, Total: 20, Timed: true}}})
		time.Sleep(time.Minute)
		send(tickMsg(time.Now()))
		if full := model.(view).View().Content; !strings.Contains(ansi.Strip(full), "20/20  done after 1m10s") {
			t.Errorf("the time of what is done goes on:\n%s", full)
		}
		if strings.Count(text, "\n") != 4 {
			t.Errorf("want 3 rows and a notice:\n%s", text)
		}
	})
}

// The view never exceeds the terminal, whatever happens.
func TestViewFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, size := range []tea.WindowSizeMsg{{Width: 40, Height: 10}, {Width: 80, Height: 24}, {Width: 200, Height: 50}, {Width: 10, Height: 2}} {
		var model tea.Model = newView(Options{Began: time.Now(), Tokens: func() Tokens { return Tokens{12, 34_567, 8_901} }})
		send := func(msg any) { model, _ = model.Update(msg) }
		send(size)
		for i := range 12 {
			send(Update{Rows: []Row{{Label: fmt.Sprint("row ", i), Done: i, Total: 12, Timed: true, Text: strings.Repeat("text ", 20)}}})
			send(noticeMsg(fmt.Sprintf("notice %d: %s", i, strings.Repeat("look here ", 9))))
			lines := strings.Split(strings.TrimSuffix(model.(view).View().Content, "\n"), "\n")
			if len(lines) >= size.Height {
				t.Errorf("%d lines in a terminal of %d", len(lines), size.Height)
			}
			for _, line := range lines {
				if w := lipgloss.Width(line); w > size.Width {
					t.Errorf("%d columns in a terminal of %d: %q", w, size.Width, line)
				}
			}
		}
		text := ansi.Strip(model.(view).View().Content)
		if size.Height > 2 && (!strings.Contains(text, "row 0") || !strings.Contains(text, "here")) {
			t.Errorf("at %v the view lacks rows or notices:\n%s", size, text)
		}
		if size.Width >= 80 && !strings.Contains(text, "notice 11") {
			t.Errorf("at %v the view lacks the newest notice:\n%s", size, text)
		}
	}
}
