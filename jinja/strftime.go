package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftimeLayouts are the directives that one of Go's layouts gives.
var strftimeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
	'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'r': "03:04:05 PM",
}

// writeDatePart writes the other directives; unknown ones stay as they are.
func writeDatePart(b *strings.Builder, directive byte, now time.Time) {
	year, week := now.ISOWeek()
	weekday := int(now.Weekday())
	switch directive {
	case '%':
		b.WriteByte('%')
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'f':
		fmt.Fprintf(b, "%06d", now.Nanosecond()/1000)
	case 'j':
		fmt.Fprintf(b, "%03d", now.YearDay())
	case 'w':
		b.WriteString(strconv.Itoa(weekday))
	case 'u':
		b.WriteString(strconv.Itoa((weekday+6)%7 + 1))
	case 'U':
		fmt.Fprintf(b, "%02d", (now.YearDay()+6-weekday)/7)
	case 'W':
		fmt.Fprintf(b, "%02d", (now.YearDay()+6-(weekday+6)%7)/7)
	case 'V':
		fmt.Fprintf(b, "%02d", week)
	case 'G':
		fmt.Fprintf(b, "%d", year)
	case 'C':
		fmt.Fprintf(b, "%02d", now.Year()/100)
	case 's':
		b.WriteString(strconv.FormatInt(now.Unix(), 10))
	case 'z', 'Z': // the reference's time has no zone
	default:
		b.WriteByte('%')
		b.WriteByte(directive)
	}
}
