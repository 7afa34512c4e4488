package pytext

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// layouts are the directives that have a layout in Go.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
	'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'r': "03:04:05 PM",
}

// Strftime formats as strftime does in the C locale, for a time without a zone.
func Strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if format[i] == '-' && i+1 < len(format) && layouts[format[i+1]] != "" { // without leading zeros
			i++
			part := strings.TrimLeft(datePart(format[i], t), "0 ")
			if part == "" {
				part = "0"
			}
			b.WriteString(part)
			continue
		}
		b.WriteString(datePart(format[i], t))
	}
	return b.String()
}

// datePart expands a directive. Unknown directives stay as they are.
func datePart(directive byte, t time.Time) string {
	year, week := t.ISOWeek()
	weekday := int(t.Weekday())
	switch directive {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'w':
		return strconv.Itoa(weekday)
	case 'u':
		return strconv.Itoa((weekday+6)%7 + 1)
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-weekday)/7)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(weekday+6)%7)/7)
	case 'V':
		return fmt.Sprintf("%02d", week)
	case 'G':
		return strconv.Itoa(year)
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 's':
		return strconv.FormatInt(t.Unix(), 10)
	case 'z', 'Z':
		return ""
	}
	if layout, ok := layouts[directive]; ok {
		return t.Format(layout)
	}
	return "%" + string(rune(directive))
}
