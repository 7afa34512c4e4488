package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

// maxText is the number of characters of a text that are shown.
const maxText = 120

// Printable makes a text of unknown origin safe for one line of a terminal: without
// control characters, and at most maxText long.
func Printable(s string) string {
	var out strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > maxText {
			out.WriteRune('…')
			break
		}
		out.WriteRune(safe(r))
	}
	return out.String()
}

// safe returns what is shown of a character in a line of a terminal. Joiners stay: emoji, Persian and the scripts of India need them.
func safe(r rune) rune {
	const nonJoiner, joiner = '\u200c', '\u200d'
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return ' '
	case r == nonJoiner || r == joiner || strconv.IsPrint(r):
		return r
	default:
		return '\uFFFD'
	}
}

// Dash returns s made printable, or a dash if it is empty.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return Printable(s)
}

// Shorten cuts a text to the width of a table cell.
func Shorten(s string) string {
	const most = 48
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}

// Count writes a number of things: "1 step", "2 steps".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Bytes writes a size: "20.0 GB".
func Bytes(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= unit.bytes {
			return strconv.FormatFloat(float64(n)/float64(unit.bytes), 'f', 1, 64) + " " + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// Duration writes a duration to the millisecond, and one below a second to ten microseconds.
func Duration(d time.Duration) string {
	if d < time.Second {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// Time writes a time in the local zone, or a dash for null.
func Time(t agl.Null[agl.Timestamp]) string {
	if !t.Valid {
		return "-"
	}
	return t.V.Time().Local().Format(time.DateTime)
}

// Took writes the time between two times; otherwise is for a time that is null.
func Took(start, end agl.Null[agl.Timestamp], otherwise string) string {
	if !start.Valid || !end.Valid {
		return otherwise
	}
	return Duration(end.V.Sub(start.V))
}

// maxBlock is the number of lines of a text that [Block] writes.
const maxBlock = 60

// Block writes a text of unknown origin, safe for a terminal: the first line behind
// head, the others behind below. The middle of a long text is left out.
func Block(b *strings.Builder, head, below, text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if left := len(lines) - maxBlock; left > 0 {
		omitted := fmt.Sprintf("[%d lines are left out here]", left)
		lines = append(append(lines[:maxBlock/2:maxBlock/2], omitted), lines[len(lines)-maxBlock/2:]...)
	}
	for _, line := range lines {
		b.WriteString(strings.TrimRight(head+strings.Map(safe, line), " ") + "\n")
		head = below
	}
}
