package display

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/agl-go/agl/internal/terminal"
)

// live redraws a few rows in place, below everything else that is printed. It leaves signals and the keyboard alone, and
// changes nothing of the terminal that has to be restored.
type live struct {
	log  *Log
	out  io.Writer                             // leaves out the colours that the terminal cannot show
	size func() (width, height int, err error) // of the terminal; nil if the output is none
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex // protects the rest, and keeps what is written in one piece
	view    view
	drawn   []string  // the lines above the cursor
	above   string    // what is to be printed above them
	resized time.Time // when the terminal had another size
}

func newLive(o Options) *live {
	l := &live{
		log:  o.Log,
		out:  &colorprofile.Writer{Forward: o.Out, Profile: max(colorprofile.Detect(o.Out, os.Environ()), colorprofile.ASCII)},
		stop: make(chan struct{}),
		done: make(chan struct{}),
		view: newView(o),
	}
	if file, ok := o.Out.(*os.File); ok {
		lipgloss.EnableLegacyWindowsANSI(file)
		l.size = func() (int, int, error) { return term.GetSize(file.Fd()) }
	}
	l.log.redirect(l.print)
	go l.run()
	return l
}

const (
	redraw = 100 * time.Millisecond
	// settled is how long a terminal must have kept its size before it is drawn on again: tmux wraps lines at once when it becomes narrower, but
	// during several changes tells programs of one in 250 ms.
	settled = 300 * time.Millisecond
)

// run draws until it is stopped. Looking at the size each time is as good as waiting for a
// signal, and there is none on Windows.
func (l *live) run() {
	defer close(l.done)
	ticker := time.Tick(redraw)
	for {
		select {
		case <-l.stop:
			for !l.draw() {
				<-ticker
			}
			return
		case <-ticker:
			l.draw()
		}
	}
}

// print prints a text above the rows.
func (l *live) print(text string) {
	l.mu.Lock()
	l.above += text + "\n"
	l.mu.Unlock()
	l.draw()
}

// draw draws how the run stands, unless the terminal is being resized.
func (l *live) draw() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.resize(now); l.drawn != nil && now.Sub(l.resized) < settled {
		return false
	}
	l.view.now = now
	lines := l.view.lines()
	if l.above != "" || !slices.Equal(lines, l.drawn) {
		fmt.Fprint(l.out, frame(l.drawn, lines, l.above, l.view.width))
		l.drawn, l.above = lines, ""
	}
	return true
}

// resize asks for the size of the terminal.
func (l *live) resize(now time.Time) {
	if l.size == nil {
		return
	}
	width, height, err := l.size()
	if err == nil && (width != l.view.width || height != l.view.height) {
		l.view.width, l.view.height, l.resized = width, height, now
	}
}

// frame replaces lines above the cursor by a text of whole lines and other lines, on a
// terminal of a width.
//
// A terminal that has become narrower has wrapped the old lines, so that they take more rows than they were. They are erased row by row: tmux keeps
// the whole screen in its history when all of it is erased at once. The new lines are not wrapped, in case that the width is no longer right.
func frame(old, lines []string, above string, width int) string {
	rows := 0
	for _, line := range old {
		rows++
		if width > 0 {
			rows += max(ansi.StringWidth(line)-1, 0) / width
		}
	}
	var b strings.Builder
	b.WriteString(ansi.SetModeSynchronizedOutput + "\r" + ansi.EraseEntireLine)
	b.WriteString(strings.Repeat(ansi.CUU1+ansi.EraseEntireLine, rows))
	b.WriteString(above + ansi.ResetModeAutoWrap)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	b.WriteString(ansi.SetModeAutoWrap + ansi.ResetModeSynchronizedOutput)
	return b.String()
}

// Update shows how the run stands at the next redraw.
func (l *live) Update(u Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, row := range u.Rows {
		l.view.rows = replace(l.view.rows, row)
	}
}

// Notice shows a text below the rows.
func (l *live) Notice(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.notices = append(l.view.notices, terminal.Safe(text))
}

// Close draws the last state. Log lines go to their writer again.
func (l *live) Close() {
	l.log.redirect(nil)
	close(l.stop)
	<-l.done
}

// view is the content of the screen.
type view struct {
	Options

	now           time.Time
	rows          []viewRow
	notices       []string
	width, height int // of the terminal; zero while they are unknown
}

// viewRow is a row with what its time estimate needs.
type viewRow struct {
	Row

	first int       // Done of the first update
	since time.Time // of the last update with that Done
	ended time.Time // of the first update that has all done
}

func newView(o Options) view { return view{Options: o, now: o.Began} }

func replace(rows []viewRow, row Row) []viewRow {
	i := slices.IndexFunc(rows, func(r viewRow) bool { return r.Label == row.Label })
	now := time.Now()
	if i < 0 {
		i, rows = len(rows), append(rows, viewRow{Row: row, first: row.Done, since: now})
	}
	r := &rows[i]
	if r.Row = row; row.Done == r.first {
		r.since = now
	}
	switch {
	case row.Done < row.Total:
		r.ended = time.Time{}
	case r.ended.IsZero():
		r.ended = now
	}
	return rows
}

var (
	labelStyle = lipgloss.NewStyle().Bold(true)
	dimStyle   = lipgloss.NewStyle().Faint(true)
	goodStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	warnStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
)

// lines are what is shown. None is longer than the terminal is wide, and there are no
// more than the terminal has rows: redrawing what has scrolled away would leave it
// there twice.
func (v view) lines() []string {
	var lines []string
	for _, r := range v.rows {
		var parts []string
		if r.Total > 0 {
			parts = append(parts, fmt.Sprintf("%s %d/%d", bar(r.Done, r.Total, v.barWidth()), r.Done, r.Total))
		}
		if r.Text != "" {
			parts = append(parts, r.Text)
		}
		if r.Timed {
			parts = append(parts, dimStyle.Render(v.timeLeft(r)))
		}
		lines = append(lines, rowLine(r.Label, strings.Join(parts, "  ")))
	}
	if v.Tokens != nil {
		if t := v.Tokens(); t.Calls > 0 {
			lines = append(lines, rowLine("cost", t.String()))
		}
	}
	return v.clip(lines, v.noticeLines())
}

// noticeLines are the lines of the notices, oldest first.
func (v view) noticeLines() (lines []string) {
	for _, text := range v.notices {
		if v.width > 0 {
			text = ansi.Wrap(text, v.width, "")
		}
		for line := range strings.SplitSeq(text, "\n") {
			lines = append(lines, warnStyle.Render(line))
		}
	}
	return lines
}

// clip returns the lines that have room. Half of it is for the newest notices, if
// there are as many.
func (v view) clip(rows, notices []string) []string {
	if v.height > 0 {
		room := max(v.height-1, 1) // the cursor stands in a line of its own
		kept := min(len(notices), max(room-len(rows), room/2))
		notices = notices[len(notices)-kept:]
		rows = rows[:min(len(rows), room-kept)]
	}
	lines := slices.Concat(rows, notices)
	if v.width > 0 {
		for i := range lines {
			lines[i] = ansi.Truncate(lines[i], v.width, "…")
		}
	}
	return lines
}

func rowLine(label, text string) string {
	return labelStyle.Render(fmt.Sprintf("%-11s", label)) + " " + text
}

// timeLeft returns the time since the beginning of the run, until the row was full, and
// an estimate of the rest, which assumes that the rest goes as fast as what is done.
func (v view) timeLeft(r viewRow) string {
	if !r.ended.IsZero() {
		return fmt.Sprintf("done after %s", r.ended.Sub(v.Began).Round(time.Second))
	}
	text := fmt.Sprintf("%s so far", v.now.Sub(v.Began).Round(time.Second))
	if done := r.Done - r.first; done > 0 && r.Done < r.Total {
		rest := v.now.Sub(r.since) / time.Duration(done) * time.Duration(r.Total-r.Done)
		text += fmt.Sprintf(", about %s left", rest.Round(time.Second))
	}
	return text
}

// barWidth is a quarter of the terminal's width, within bounds.
func (v view) barWidth() int {
	const narrow, wide = 8, 30
	if v.width == 0 {
		return wide
	}
	return max(narrow, min(wide, v.width/4))
}

func bar(done, total, width int) string {
	full := max(0, min(width, done*width/total))
	return goodStyle.Render(strings.Repeat("█", full)) + dimStyle.Render(strings.Repeat("░", width-full))
}
