package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl/store/backend"
	"github.com/agl-go/agl/store/memory"
)

// databaseName is a database on the command line.
type databaseName struct{ backend.DSN }

// UnmarshalText reads a name.
func (d *databaseName) UnmarshalText(text []byte) (err error) {
	d.DSN, err = backend.Parse(string(text))
	return err
}

// span is a length of time that may be given in days; 0 is none.
type span time.Duration

// String is the span as it may be given.
func (s span) String() string { return time.Duration(s).String() }

// UnmarshalText reads a span such as 7d, 36h or 1d12h.
func (s *span) UnmarshalText(text []byte) error {
	wrong := fmt.Errorf("got %q, must be longer than 0, such as 7d, 36h or 10m", text)
	var total time.Duration
	rest := string(text)
	if days, behind, found := strings.Cut(rest, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n >= 0 && n < math.MaxInt64/float64(24*time.Hour)) { // NaN, too
			return wrong
		}
		total, rest = time.Duration(n*float64(24*time.Hour)), behind
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return wrong
		}
		total += d
	}
	if total <= 0 {
		return wrong
	}
	*s = span(total)
	return nil
}

// size is a number of bytes; 0 is none.
type size int64

// String is the size as it may be given.
func (s size) String() string { return strconv.FormatInt(int64(s), 10) }

// UnmarshalText reads a size such as 20GB or 512MiB.
func (s *size) UnmarshalText(text []byte) error {
	n, ok := parseSize(string(text))
	if !ok {
		return fmt.Errorf("got %q, must be a size above 0 such as 20GB or 512MiB", text)
	}
	*s = size(n)
	return nil
}

// units are those of sizes, one that ends like another before it.
func units() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
	}
}

// parseSize reads a whole number of bytes, or of a unit.
func parseSize(s string) (bytes int64, ok bool) {
	factor := int64(1)
	for _, u := range units() {
		if number, found := strings.CutSuffix(s, u.name); found {
			s, factor = number, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n * factor, err == nil && n > 0 && n <= (1<<62)/factor
}

// formatSize writes a size for people.
func formatSize(bytes int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if bytes >= u.bytes {
			return strconv.FormatFloat(float64(bytes)/float64(u.bytes), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(bytes, 10) + " B"
}

// limit is an amount of memory: a share up to 1, or a size with a unit.
type limit memory.Limit

// String is the amount as it may be given.
func (l limit) String() string {
	if l.Bytes > 0 {
		return strconv.FormatInt(l.Bytes, 10)
	}
	return strconv.FormatFloat(l.Ratio, 'f', -1, 64)
}

// UnmarshalText reads an amount. As in the reference a number with a point is a
// share, one without is bytes.
func (l *limit) UnmarshalText(text []byte) error {
	s := string(text)
	wrong := fmt.Errorf("got %q, must be a share above 0 and up to 1 such as 0.7, or a size such as 2GiB", s)
	if ratio, err := strconv.ParseFloat(s, 64); err == nil && strings.Contains(s, ".") {
		if ratio <= 0 || ratio > 1 { // 0 would be taken for the default
			return wrong
		}
		*l = limit{Ratio: ratio}
		return nil
	}
	n, ok := parseSize(s)
	if !ok {
		return wrong
	}
	*l = limit{Bytes: n}
	return nil
}
