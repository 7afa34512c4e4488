package display

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/agl-go/agl/internal/terminal"
)

// live redraws a few rows in place.
type live struct {
	program *tea.Program
	log     *Log
	done    chan struct{}
}

// newLive starts the view. It leaves signals and the keyboard alone.
func newLive(o Options) *live {
	l := &live{log: o.Log, done: make(chan struct{})}
	l.program = tea.NewProgram(newView(o), tea.WithInput(nil), tea.WithOutput(o.Out), tea.WithoutSignalHandler())
	l.log.redirect(func(text string) { l.program.Println(text) })
	go func() {
		defer close(l.done)
		if _, err := l.program.Run(); err != nil {
			fmt.Fprintln(o.Out, "the live view ended:", err)
		}
	}()
	return l
}

type (
	tickMsg   time.Time
	noticeMsg string
)

func (l *live) Update(u Update)    { l.program.Send(u) }
func (l *live) Notice(text string) { l.program.Send(noticeMsg(terminal.Safe(text))) }

// Close draws the last state and waits until the program has released the terminal.
func (l *live) Close() {
	l.log.redirect(nil)
	l.program.Quit()
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

const redraw = 100 * time.Millisecond

func tick() tea.Cmd { return tea.Tick(redraw, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Init starts the clock.
func (v view) Init() tea.Cmd { return tick() }

// Update handles a message.
func (v view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tickMsg:
		v.now = time.Time(m)
		return v, tick()
	case tea.WindowSizeMsg:
		narrower := m.Width < v.width
		v.width, v.height = m.Width, m.Height
		if narrower {
			// The terminal has wrapped rows, parts of which would stay: the view goes to the
			// top of an empty screen.
			return v, tea.Sequence(tea.Raw(ansi.CursorHomePosition+ansi.EraseScreenBelow), tea.ClearScreen)
		}
	case noticeMsg:
		v.notices = append(v.notices, string(m))
	case Update:
		for _, row := range m.Rows {
			v.rows = replace(v.rows, row)
		}
	}
	return v, nil
}

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

// View draws the screen. It has no line that is longer than the terminal is wide, and
// no more lines than the terminal has rows: redrawing what has scrolled away would
// leave it there twice.
func (v view) View() tea.View {
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
	return tea.NewView(strings.Join(v.clip(lines, v.noticeLines()), "\n") + "\n")
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
