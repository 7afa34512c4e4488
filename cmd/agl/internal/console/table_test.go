package console

import (
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"
)

// TestTableFits: a table is as wide as the terminal at most. Its last column is
// shortened, then columns are dropped in their order, in the end from the last one on.
func TestTableFits(t *testing.T) {
	t.Parallel()
	table := Table{
		Headers: []string{"ID", "STATUS", "WORKER", "TOOK", "INPUT"}, Status: 1, Drop: []string{"WORKER", "TOOK"},
		Rows: [][]string{{"ro-1", "succeeded", "host-1", "3s", strings.Repeat("long ", 12)}},
	}
	for width, want := range map[int][]string{
		200: {"ID", "STATUS", "WORKER", "TOOK", "INPUT"},
		80:  {"ID", "STATUS", "WORKER", "TOOK", "INPUT"},
		50:  {"ID", "STATUS", "TOOK", "INPUT"},
		40:  {"ID", "STATUS", "INPUT"},
		30:  {"ID", "STATUS", "INPUT"},
		20:  {"ID", "STATUS"},
		10:  {"ID"},
		6:   {"ID"},
	} {
		fitted := table.fit(width)
		if diff := cmp.Diff(want, fitted.Headers); diff != "" {
			t.Errorf("columns at %d (-want +got):\n%s", width, diff)
		}
		drawn := fitted.drawn()
		if got := lipgloss.Width(drawn); got > width {
			t.Errorf("width %d at %d:\n%s", got, width, drawn)
		}
	}
	if len(table.Headers) != 5 || !strings.HasSuffix(table.Rows[0][4], "long ") {
		t.Errorf("the table itself has changed: %v", table)
	}
}
