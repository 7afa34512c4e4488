package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"github.com/agl-go/agl"
)

// grid is a table of texts, drawn on a terminal and plain elsewhere.
type grid struct {
	headers []string
	status  int // the column of statuses, -1 when there is none
	rows    [][]string
}

func (g *grid) print(m *Main) error {
	if isTerminal(m.Stdout) {
		return g.draw(m)
	}
	return g.plain(m)
}

func (g *grid) draw(m *Main) error {
	drawn := table.New().Border(lipgloss.RoundedBorder()).BorderStyle(faint).
		Headers(g.headers...).Rows(g.rows...).
		StyleFunc(func(r, column int) lipgloss.Style {
			cell := lipgloss.NewStyle().Padding(0, 1)
			switch {
			case r == table.HeaderRow:
				return cell.Bold(true)
			case column != g.status:
				return cell
			}
			switch g.rows[r][column] {
			case string(agl.RolloutSucceeded):
				return cell.Foreground(lipgloss.Green)
			case string(agl.RolloutFailed), string(agl.RolloutCancelled), string(agl.AttemptTimeout), string(agl.AttemptUnresponsive),
				string(agl.StatusError):
				return cell.Foreground(lipgloss.Red)
			default:
				return cell
			}
		})
	out, flush := m.styled()
	if _, err := fmt.Fprintln(out, drawn.Render()); err != nil {
		return errOutput(err)
	}
	return flush()
}

func (g *grid) plain(m *Main) error {
	w := tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)
	for _, cells := range append([][]string{g.headers}, g.rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return errOutput(err)
		}
	}
	return errOutput(w.Flush())
}
