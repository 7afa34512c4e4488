package console

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/agl-go/agl/internal/terminal"
)

// Table is a table, with borders on a terminal and plain elsewhere.
type Table struct {
	Headers []string
	Status  int // the column of statuses, which are coloured; -1 when there is none
	Rows    [][]string
	// Drop names the columns that are left out on a terminal that is too narrow, in order. The last
	// column is shortened first. If leaving out all of these is not enough, further columns are
	// left out, from the last one on.
	Drop []string
}

// Print writes the table to standard output.
func (t *Table) Print(c *Console) error {
	for _, row := range t.Rows {
		for i := range row {
			row[i] = terminal.Safe(row[i])
		}
	}
	return c.Styled(func(w io.Writer) error {
		if IsTerminal(c.Out) {
			width, _, err := term.GetSize(c.Out.(*os.File).Fd()) //nolint:forcetypeassert // it is a terminal
			if err != nil || width <= 0 {
				width = math.MaxInt
			}
			_, err = fmt.Fprintln(w, t.fit(width).drawn())
			return err
		}
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, cells := range append([][]string{t.Headers}, t.Rows...) {
			if _, err := fmt.Fprintln(columns, strings.Join(cells, "\t")); err != nil {
				return err
			}
		}
		return columns.Flush()
	})
}

// leastLast is the width to which the last column is shortened before another one is
// dropped.
const leastLast = 16

// fit returns the table with the columns and the text that have room.
func (t *Table) fit(width int) *Table {
	fitted := &Table{Headers: slices.Clone(t.Headers), Status: t.Status}
	for _, row := range t.Rows {
		fitted.Rows = append(fitted.Rows, slices.Clone(row))
	}
	for dropped := 0; ; dropped++ {
		last := len(fitted.Headers) - 1
		room := width - 1
		for column := range last {
			room -= fitted.width(column) + borders
		}
		room -= borders
		switch {
		case room >= min(leastLast, fitted.width(last)),
			dropped >= len(t.Drop) && room > 0, last == 0:
			fitted.cut(last, max(room, 1))
			return fitted
		case dropped < len(t.Drop):
			fitted.remove(slices.Index(fitted.Headers, t.Drop[dropped]))
		default:
			fitted.remove(last)
		}
	}
}

// borders is the width that a cell adds to its text.
const borders = 3

func (t *Table) width(column int) int {
	widest := lipgloss.Width(t.Headers[column])
	for _, row := range t.Rows {
		widest = max(widest, lipgloss.Width(row[column]))
	}
	return widest
}

func (t *Table) remove(column int) {
	t.Headers = slices.Delete(t.Headers, column, column+1)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Delete(row, column, column+1)
	}
	switch {
	case column < t.Status:
		t.Status--
	case column == t.Status:
		t.Status = -1
	}
}

func (t *Table) cut(column, width int) {
	t.Headers[column] = ansi.Truncate(t.Headers[column], width, "…")
	for _, row := range t.Rows {
		row[column] = ansi.Truncate(row[column], width, "…")
	}
}

func (t *Table) drawn() string {
	return table.New().Border(lipgloss.RoundedBorder()).BorderStyle(Faint).
		Headers(t.Headers...).Rows(t.Rows...).
		StyleFunc(func(row, column int) lipgloss.Style {
			style := lipgloss.NewStyle()
			switch {
			case row == table.HeaderRow:
				style = Strong
			case column == t.Status:
				style = statusStyle(t.Rows[row][column])
			}
			return style.Padding(0, 1)
		}).Render()
}
