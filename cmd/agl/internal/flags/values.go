// Package flags holds the flags that several commands share, and the types of
// their values: each UnmarshalText says what is allowed when it refuses a value.
package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl/store/memory"
)

// Duration is a length of time that may be given in days; 0 is none.
type Duration time.Duration

// LongestDays is how many whole days a Duration can hold.
const LongestDays = math.MaxInt64 / int64(24*time.Hour)

// UnmarshalText reads a duration such as 7d, 36h or 1d12h.
func (d *Duration) UnmarshalText(text []byte) error {
	wrong := fmt.Errorf("got %q, must be a time such as 7d, 36h or 10m, longer than 0 and at most %dd", text, LongestDays)
	var total time.Duration
	rest := string(text)
	if days, clock, found := strings.Cut(rest, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n >= 0 && n < math.MaxInt64/float64(24*time.Hour)) { // also rejects NaN
			return wrong
		}
		total, rest = time.Duration(n*float64(24*time.Hour)), clock
	}
	if rest != "" {
		clock, err := time.ParseDuration(rest)
		if err != nil || clock < 0 || clock > math.MaxInt64-total {
			return wrong
		}
		total += clock
	}
	if total <= 0 {
		return wrong
	}
	*d = Duration(total)
	return nil
}

// Size is a number of bytes; 0 is none.
type Size int64

// UnmarshalText reads a size such as 20GB or 512MiB.
func (s *Size) UnmarshalText(text []byte) error {
	n, ok := parseSize(string(text))
	if !ok {
		return fmt.Errorf("got %q, must be a whole size such as 20GB or 512MiB, above 0 and at most %dTiB", text, mostBytes>>40)
	}
	*s = Size(n)
	return nil
}

// Count limits a number; 0, which no flag can set, is no limit.
type Count int64

// UnmarshalText reads a number above 0.
func (c *Count) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("got %q, must be a whole number of at least 1; leave it out for no limit", text)
	}
	*c = Count(n)
	return nil
}

// Dollars limits an amount of money; 0, which no flag can set, is no limit.
type Dollars float64

// mostDollars is the highest limit of a budget.
const mostDollars = 1e9

// UnmarshalText reads an amount above 0.
func (d *Dollars) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(n > 0 && n <= mostDollars) { // also rejects NaN
		return fmt.Errorf("got %q, must be a number above 0 and at most %.0f; leave it out for no limit", text, mostDollars)
	}
	*d = Dollars(n)
	return nil
}

const mostBytes = 1 << 62

// parseSize reads a whole number of bytes, or of a unit.
func parseSize(s string) (bytes int64, ok bool) {
	factor := int64(1)
	for _, unit := range []struct {
		name  string
		bytes int64
	}{
		// A unit precedes every unit whose name is its suffix.
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
	} {
		if number, found := strings.CutSuffix(s, unit.name); found {
			s, factor = number, unit.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n * factor, err == nil && n > 0 && n <= mostBytes/factor
}

// MemoryLimit is an amount of memory: a share of the machine's, or a size.
type MemoryLimit memory.Limit

// String writes the amount as a flag takes it.
func (l MemoryLimit) String() string {
	if l.Bytes > 0 {
		return strconv.FormatInt(l.Bytes, 10)
	}
	return strconv.FormatFloat(l.Ratio, 'f', -1, 64)
}

// UnmarshalText reads an amount. As in the Python package, a number with a decimal
// point is a share and one without is bytes.
func (l *MemoryLimit) UnmarshalText(text []byte) error {
	s := string(text)
	wrong := fmt.Errorf("got %q, must be a share above 0 and up to 1 such as 0.7, or a size such as 2GiB", s)
	if ratio, err := strconv.ParseFloat(s, 64); err == nil && strings.Contains(s, ".") {
		if ratio <= 0 || ratio > 1 { // 0 would mean the default
			return wrong
		}
		*l = MemoryLimit{Ratio: ratio}
		return nil
	}
	n, ok := parseSize(s)
	if !ok {
		return wrong
	}
	*l = MemoryLimit{Bytes: n}
	return nil
}
