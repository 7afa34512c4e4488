package display

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
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
func (l *live) Notice(text string) { l.program.Send(noticeMsg(text)) }

// Close draws the last state and waits until the program has released the terminal.
func (l *live) Close() {
	l.log.redirect(nil)
	l.program.Quit()
	<-l.done
}

// view is the content of the screen.
type view struct {
	Options

	now     time.Time
	rows    []viewRow
	notices []string
}

// viewRow is a row with what its time estimate needs.
type viewRow struct {
	Row

	first int       // Done of the first update
	since time.Time // of the last update with that Done
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
	if i < 0 {
		return append(rows, viewRow{row, row.Done, time.Now()})
	}
	if rows[i].Row = row; row.Done == rows[i].first {
		rows[i].since = time.Now()
	}
	return rows
}

var (
	labelStyle = lipgloss.NewStyle().Bold(true)
	dimStyle   = lipgloss.NewStyle().Faint(true)
	goodStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	warnStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
)

// View draws the screen.
func (v view) View() tea.View {
	var b strings.Builder
	for _, r := range v.rows {
		var parts []string
		if r.Total > 0 {
			parts = append(parts, fmt.Sprintf("%s %d/%d", bar(r.Done, r.Total), r.Done, r.Total))
		}
		if r.Text != "" {
			parts = append(parts, r.Text)
		}
		if r.Timed {
			parts = append(parts, dimStyle.Render(v.timeLeft(r)))
		}
		writeRow(&b, r.Label, strings.Join(parts, "  "))
	}
	if v.Tokens != nil {
		if t := v.Tokens(); t.Calls > 0 {
			writeRow(&b, "cost", t.String())
		}
	}
	for _, text := range v.notices {
		b.WriteString(warnStyle.Render(text) + "\n")
	}
	return tea.NewView(b.String())
}

func writeRow(b *strings.Builder, label, text string) {
	fmt.Fprintf(b, "%s %s\n", labelStyle.Render(fmt.Sprintf("%-11s", label)), text)
}

// timeLeft returns the time since the beginning of the run and an estimate of the
// rest, which assumes that the rest goes as fast as what is done.
func (v view) timeLeft(r viewRow) string {
	text := fmt.Sprintf("%s so far", v.now.Sub(v.Began).Round(time.Second))
	if done := r.Done - r.first; done > 0 && r.Done < r.Total {
		rest := v.now.Sub(r.since) / time.Duration(done) * time.Duration(r.Total-r.Done)
		text += fmt.Sprintf(", about %s left", rest.Round(time.Second))
	}
	return text
}

const barWidth = 30

func bar(done, total int) string {
	full := min(barWidth, done*barWidth/total)
	return goodStyle.Render(strings.Repeat("█", full)) + dimStyle.Render(strings.Repeat("░", barWidth-full))
}
