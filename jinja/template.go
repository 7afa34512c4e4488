package jinja

import (
	"cmp"
	"strings"
	"time"

	"github.com/agl-go/agl/jinja/internal/syntax"
	"github.com/agl-go/agl/jinja/internal/value"
)

// Limits bound what one rendering may take. Zero fields mean the defaults.
type Limits struct {
	// Steps is the number of statements, expressions and elements that may be evaluated; zero means 10,000,000.
	Steps int
	// Output is the size in bytes that the result, and any string made for it, may have; zero means 32 MiB.
	Output int
	// Work is the total size in bytes of all values made, including intermediate ones; zero means 512 MiB.
	Work int
	// Depth is how deeply calls, loops and values may nest; zero means 200.
	Depth int
}

func (l Limits) withDefaults() Limits {
	return Limits{cmp.Or(l.Steps, 10_000_000), cmp.Or(l.Output, 32<<20), cmp.Or(l.Work, 512<<20), cmp.Or(l.Depth, 200)}
}

func (l Limits) validate() error {
	if min(l.Steps, l.Output, l.Work, l.Depth) < 0 {
		return &Error{Kind: Limit, Message: "limits must not be negative"}
	}
	return nil
}

// Config configures how a template is rendered.
type Config struct {
	Limits Limits
	// Now is the clock of strftime_now; nil means time.Now.
	Now func() time.Time
}

// Template is a parsed template. Several goroutines may render it at once.
type Template struct {
	body []syntax.Stmt
	cfg  Config
	lib  library
}

// Parse reads a template. An error is an *[Error] of kind [Syntax], or [Limit] for a bad Config.
func Parse(source string, cfg Config) (*Template, error) {
	if err := cfg.Limits.validate(); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	lib := newLibrary()
	body, err := syntax.Parse(source, has(lib.filters), has(lib.tests))
	if err != nil {
		return nil, &Error{Syntax, err.Line, err.Message}
	}
	return &Template{body, cfg, lib}, nil
}

// Render renders the template with the given variables. Values are nil, bool, int, int64, *big.Int, float64,
// string, []any, [Tuple], map[string]any (its keys are sorted) and *[Dict] (its order is kept); anything else is an
// error. Nothing that is passed in is changed. An error is an *[Error].
func (t *Template) Render(vars map[string]any) (text string, err error) {
	x := &executor{Runtime: value.New(value.Limits(t.cfg.Limits)), filters: t.lib.filters, tests: t.lib.tests, out: new(strings.Builder)}
	// A failing operation panics, as in text/template: nearly every operation can fail.
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *value.Failure:
			kind := Runtime
			if e.Limit {
				kind = Limit
			}
			err = &Error{kind, x.line, e.Message}
		case raised:
			err = &Error{Raised, x.line, string(e)}
		default:
			panic(e)
		}
	}()
	context := &scope{parent: &scope{vars: globals(t.cfg.Now)}, vars: make(map[string]any, len(vars))}
	for name, v := range vars {
		context.vars[name] = variable(x.Runtime, v)
	}
	x.scope = &scope{parent: context}
	x.block(t.body)
	return x.out.String(), nil
}
