package display

import (
	"fmt"
	"strings"
)

// Chart draws the values of consecutive steps, from first on, as a curve for a
// terminal. Values are between 0 and 1. Without values it is empty.
func Chart(first int, values []float64) string {
	const columns, rows = 70, 8
	return chart(first, values, columns, rows)
}

// chart draws dots: two per column, four levels per row.
func chart(first int, values []float64, columns, rows int) string {
	if len(values) == 0 {
		return ""
	}
	dots := resample(values, min(2*columns, len(values)))
	levels := 4 * rows
	grid := make([][]rune, rows)
	for i := range grid {
		grid[i] = make([]rune, (len(dots)+1)/2)
	}
	// The bits of a braille cell, by column and by level from the top.
	bits := [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}
	for x, v := range dots {
		level := levels - 1 - min(levels-1, max(0, int(v*float64(levels))))
		grid[level/4][x/2] |= bits[x%2][level%4]
	}
	var b strings.Builder
	for i, row := range grid {
		switch i {
		case 0:
			b.WriteString("1.0 ┤")
		case rows - 1:
			b.WriteString("0.0 ┤")
		default:
			b.WriteString("    │")
		}
		for _, cell := range row {
			b.WriteRune(0x2800 + cell)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "    └%s\n     steps %d to %d\n", strings.Repeat("─", len(grid[0])), first, first+len(values)-1)
	return b.String()
}

// resample averages values in n buckets.
func resample(values []float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		from, to := i*len(values)/n, (i+1)*len(values)/n
		for _, v := range values[from:to] {
			out[i] += v
		}
		out[i] /= float64(to - from)
	}
	return out
}
