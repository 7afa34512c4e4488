package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// scalar declares a scalar.
func scalar(must string, schema func(d *defs) object, take func(r *reader, n *yaml.Node, at string)) Value {
	return Value{kind: yaml.ScalarNode, must: must, schema: schema, take: take}
}

// Text declares a text. A number counts as its spelling.
func Text(to *string) Value {
	const must = "a text"
	return scalar(must, plainText, func(r *reader, n *yaml.Node, at string) {
		if n.Tag == "!!bool" || n.Tag == nullTag {
			r.wrong(n, at, must+"; put it in quotes")
			return
		}
		*to = n.Value
	})
}

func plainText(*defs) object { return object{{"type", []string{"string", "number"}}} }

// Bool declares true or false.
func Bool(to *bool) Value {
	const must = "true or false"
	return scalar(must, func(*defs) object { return object{{"type", "boolean"}} }, func(r *reader, n *yaml.Node, at string) {
		if n.Tag != "!!bool" || n.Decode(to) != nil {
			r.wrong(n, at, must)
		}
	})
}

// Limit bounds a number.
type Limit struct {
	keyword string // of JSON Schema
	words   string // for errors
	value   float64
}

// Min allows numbers of at least v.
func Min(v float64) Limit { return Limit{"minimum", "of at least", v} }

// Max allows numbers of at most v.
func Max(v float64) Limit { return Limit{"maximum", "of at most", v} }

// Above allows numbers greater than v.
func Above(v float64) Limit { return Limit{"exclusiveMinimum", "above", v} }

// Below allows numbers less than v.
func Below(v float64) Limit { return Limit{"exclusiveMaximum", "below", v} }

func (l Limit) allows(v float64) bool {
	switch l.keyword {
	case "minimum":
		return v >= l.value
	case "maximum":
		return v <= l.value
	case "exclusiveMinimum":
		return v > l.value
	default:
		return v < l.value
	}
}

// bounded returns the description of a number within limits for errors, its schema, and its check.
func bounded(what, kind string, limits []Limit) (must string, schema func(*defs) object, allows func(float64) bool) {
	var words []string
	for _, l := range limits {
		words = append(words, l.words+" "+strconv.FormatFloat(l.value, 'f', -1, 64))
	}
	must = what + " " + strings.Join(words, " and ")
	if len(limits) == 1 && limits[0] == Min(0) {
		must = what + " that is not negative"
	}
	schema = func(*defs) object {
		out := object{{"type", kind}}
		for _, l := range limits {
			out = append(out, member{l.keyword, l.value})
		}
		return out
	}
	allows = func(v float64) bool {
		return !slices.ContainsFunc(limits, func(l Limit) bool { return !l.allows(v) })
	}
	return must, schema, allows
}

// Integer declares an integer within limits. Without limits it must not be negative.
func Integer[T int | int64 | uint64](to *T, limits ...Limit) Value {
	if len(limits) == 0 {
		limits = []Limit{Min(0)}
	}
	must, schema, allows := bounded("an integer", "integer", limits)
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		if n.Tag != "!!int" || n.Decode(to) != nil || !allows(float64(*to)) {
			r.wrong(n, at, must+largest[T](n.Value, allows))
		}
	})
}

// largest returns the end of the message for a number too large for T, " and of at most N", and "" if it fits or a limit forbids N.
func largest[T int | int64 | uint64](text string, allows func(float64) bool) string {
	most := uint64(math.MaxInt64)
	if ^T(0) > 0 {
		most = math.MaxUint64
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if !allows(float64(most)) || !errors.Is(err, strconv.ErrRange) && n <= most {
		return ""
	}
	return fmt.Sprintf(" and of at most %d", most)
}

// Number declares a finite number within limits. Without limits it must not be negative.
func Number[T float32 | float64](to *T, limits ...Limit) Value {
	if len(limits) == 0 {
		limits = []Limit{Min(0)}
	}
	must, schema, allows := bounded("a number", "number", limits)
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		var v float64
		if n.Tag != "!!int" && n.Tag != "!!float" || n.Decode(&v) != nil || math.IsInf(v, 0) || math.IsNaN(v) || !allows(v) {
			r.wrong(n, at, must)
			return
		}
		*to = T(v)
	})
}

// Duration declares a duration above 0 such as 100ms or 5m. In a configuration 0 stands for the default; whoever writes 0 in a
// file means something else.
func Duration(to *time.Duration) Value { return duration(to, false) }

// DurationOrZero declares a duration whose key says what 0 means.
func DurationOrZero(to *time.Duration) Value { return duration(to, true) }

func duration(to *time.Duration, zero bool) Value {
	name, words := "time", " above 0"
	if zero {
		name, words = "time_or_0", ""
	}
	must := "a time" + words + " such as 100ms, 30s or 5m"
	schema := func(d *defs) object {
		out := object{
			{"description", "A time" + words + " such as 100ms, 30s or 5m."},
			{"pattern", `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`},
		}
		if zero {
			return d.ref(name, append(out, member{"type", []string{"string", "number"}}, member{"minimum", 0}, member{"maximum", 0}))
		}
		return d.ref(name, append(out, member{"type", "string"}, member{"not", object{{"pattern", "^[^1-9]*$"}}}))
	}
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		d, err := time.ParseDuration(n.Value)
		if err != nil || d < 0 || d == 0 && !zero {
			r.wrongText(n, at, must)
			return
		}
		*to = d
	})
}

// wrongText refuses a value, and shows it if it is a text.
func (r *reader) wrongText(n *yaml.Node, at, must string) {
	got := describe(n)
	if got == "a text" {
		got = fmt.Sprintf("%.100q", n.Value)
	}
	r.failf(n, "%s: got %s, must be %s", at, got, must)
}

// Size declares a number of bytes above 0 such as 256MiB or 1048576. In a configuration 0 stands for the
// default; whoever writes 0 in a file means something else.
func Size[T int | int64](to *T) Value { return size(to, false) }

// SizeOrZero declares a number of bytes whose key says what 0 means.
func SizeOrZero[T int | int64](to *T) Value { return size(to, true) }

func size[T int | int64](to *T, zero bool) Value {
	name, words, least, digits := "size", " above 0", 1, "0*[1-9][0-9]*"
	if zero {
		name, words, least, digits = "size_or_0", "", 0, "[0-9]+"
	}
	must := "a size" + words + " such as 256MiB, in KiB, MiB, GiB or TiB, or a number of bytes"
	schema := func(d *defs) object {
		return d.ref(name, object{
			{"description", "A number of bytes" + words + " such as 256MiB or 1048576."},
			{"type", []string{"string", "integer"}},
			{"pattern", `^\+?` + digits + `( *(KiB|MiB|GiB|TiB))?$`},
			{"minimum", least},
		})
	}
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		number, factor := n.Value, int64(1)
		for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
			if rest, ok := strings.CutSuffix(number, unit); ok {
				number, factor = strings.TrimSpace(rest), int64(1)<<(10*(i+1))
				break
			}
		}
		count, err := strconv.ParseInt(number, 10, 64)
		if err != nil || count < 0 || count == 0 && !zero || count > math.MaxInt64/2/factor || int64(T(count*factor)) != count*factor {
			r.wrongText(n, at, must)
			return
		}
		*to = T(count * factor)
	})
}

const envPattern = `^env:[A-Za-z_][A-Za-z0-9_]*$`

var envName = regexp.MustCompile(envPattern)

// Secret declares the name of the environment variable that holds a secret. The file must not contain the secret itself.
func Secret(to *string) Value {
	const must = "env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file"
	schema := func(d *defs) object {
		return d.ref("secret", object{
			{"description", "env:NAME, the name of the environment variable that holds a secret."},
			{"type", "string"}, {"pattern", envPattern},
		})
	}
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		if !envName.MatchString(n.Value) {
			r.failf(n, "%s: must be %s", at, must) // without the value, which may be a secret
			return
		}
		*to = n.Value
	})
}

// Word declares one of several words, each of which stands for a value.
func Word[T any](to *T, words map[string]T) Value {
	allowed := slices.Sorted(maps.Keys(words))
	must := strings.Join(allowed, " or ")
	schema := func(*defs) object { return object{{"type", "string"}, {"enum", allowed}} }
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		value, ok := words[n.Value]
		if !ok {
			r.failf(n, "%s: got %q, must be %s", at, n.Value, must)
			return
		}
		*to = value
	})
}

// Words declares one of several words that stand for themselves.
func Words[T ~string](to *T, words ...T) Value {
	meanings := make(map[string]T, len(words))
	for _, w := range words {
		meanings[string(w)] = w
	}
	return Word(to, meanings)
}

// URL declares an absolute HTTP URL without a user or a password, which would be a secret in the file.
func URL(to *string) Value {
	const must = "an http or https URL such as http://127.0.0.1:8000/v1"
	schema := func(d *defs) object {
		return d.ref("url", object{
			{"description", "An http or https URL without a user or a password."},
			{"type", "string"}, {"pattern", "^[Hh][Tt][Tt][Pp][Ss]?://"},
		})
	}
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		u, err := url.Parse(n.Value)
		switch {
		case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			r.failf(n, "%s: must be %s", at, must)
		case u.User != nil:
			r.failf(n, "%s: it holds a user or a password, which have no place in this file; use api_key or token", at)
		default:
			if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
				r.failf(n, "%s: the port %s is above 65535", at, u.Port())
			}
			*to = n.Value
		}
	})
}

// Address declares HOST:PORT.
func Address(to *string) Value {
	const must = "HOST:PORT such as 127.0.0.1:4748"
	schema := func(d *defs) object {
		return d.ref("address", object{
			{"description", "HOST:PORT such as 127.0.0.1:4748; port 0 is a free one."},
			{"type", "string"}, {"pattern", "^.*:[0-9]{1,5}$"},
		})
	}
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		_, port, err := net.SplitHostPort(n.Value)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
			r.failf(n, "%s: got %q, must be %s", at, n.Value, must)
			return
		}
		*to = n.Value
	})
}
