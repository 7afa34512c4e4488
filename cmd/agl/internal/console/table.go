package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
)

// Table is a table, with borders on a terminal and plain elsewhere.
type Table struct {
	Headers []string
	Status  int // the column of statuses, which are coloured; -1 when there is none
	Rows    [][]string
}

// Print writes the table to standard output.
func (t *Table) Print(c *Console) error {
	return c.Styled(func(w io.Writer) error {
		if IsTerminal(c.Out) {
			_, err := fmt.Fprintln(w, t.drawn())
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
