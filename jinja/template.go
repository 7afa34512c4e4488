package jinja

import (
	"fmt"
	"strings"
	"time"
)

// Limits bound what one rendering may take. Zero fields mean the defaults.
type Limits struct {
	// Steps is how many statements, expressions and elements may be evaluated; zero means 10,000,000.
	Steps int
	// Output is how many bytes the result, and any single text on the way to it, may have; zero means 32 MiB.
	Output int
	// Work is how many bytes may be made in all, results in between included; zero means 512 MiB.
	Work int
	// Depth is how deeply calls, loops and values may nest; zero means 200.
	Depth int
}

func (l Limits) withDefaults() Limits {
	if l.Steps == 0 {
		l.Steps = 10_000_000
	}
	if l.Output == 0 {
		l.Output = 32 << 20
	}
	if l.Work == 0 {
		l.Work = 512 << 20
	}
	if l.Depth == 0 {
		l.Depth = 200
	}
	return l
}

func (l Limits) validate() error {
	if l.Steps < 0 || l.Output < 0 || l.Work < 0 || l.Depth < 0 {
		return &Error{Kind: Limit, Message: "no limit may be negative"}
	}
	return nil
}

// Config is how a template is rendered.
type Config struct {
	Limits Limits
	// Now is the clock of strftime_now; nil means time.Now.
	Now func() time.Time
}

// Template is a parsed template. It may be rendered by several goroutines at once.
type Template struct {
	body []stmt
	cfg  Config

	filters map[string]builtin
	tests   map[string]builtin
}

// maxNesting bounds how deeply the source may nest.
const maxNesting = 200

// Parse reads a template. An error is an *[Error] of kind [Syntax], or [Limit] for a bad Config.
func Parse(source string, cfg Config) (t *Template, err error) {
	defer rescue(&err)
	if err := cfg.Limits.validate(); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &parser{tokens: lex(source), filters: filterTable(), tests: testTable()}
	body := p.statements()
	return &Template{body: body, cfg: cfg, filters: p.filters, tests: p.tests}, nil
}

// Render renders the template with the given variables. Values are nil, bool, int, int64, *big.Int, float64,
// string, []any, [Tuple], map[string]any (its keys sorted) and *[Dict] (its order kept); anything else is an
// error. Nothing that is passed in is changed. An error is an *[Error].
func (t *Template) Render(vars map[string]any) (text string, err error) {
	defer rescue(&err)
	r := &run{limits: t.cfg.Limits, now: t.cfg.Now, filters: t.filters, tests: t.tests, out: new(strings.Builder)}
	globals := &scope{vars: globalValues()}
	context := &scope{parent: globals, vars: make(map[string]any, len(vars))}
	for name, v := range vars {
		context.vars[name] = r.importValue(v)
	}
	r.scope = &scope{parent: context}
	r.block(t.body)
	return r.out.String(), nil
}

// run is one rendering.
type run struct {
	limits Limits
	now    func() time.Time
	out    *strings.Builder
	scope  *scope

	filters map[string]builtin
	tests   map[string]builtin

	steps, work, depth int
	line               int // of the statement or expression under way
}

// scope holds variables. A name that is not in it is looked for in its parent.
type scope struct {
	parent *scope
	vars   map[string]any
}

func (s *scope) set(name string, v any) {
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	s.vars[name] = v
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// failf ends the rendering with an error of kind Runtime.
func (r *run) failf(format string, args ...any) { r.failAsf(Runtime, format, args...) }

func (r *run) failAsf(kind Kind, format string, args ...any) {
	panic(&Error{Kind: kind, Line: r.line, Message: fmt.Sprintf(format, args...)})
}

// step counts n elements of work.
func (r *run) step(n int) {
	if r.steps += n; r.steps > r.limits.Steps {
		r.failAsf(Limit, "more than %d steps", r.limits.Steps)
	}
}

// reserve counts n bytes that are about to be made as one value.
func (r *run) reserve(n int) {
	if n > r.limits.Output {
		r.failAsf(Limit, "a value of %d bytes; allowed are %d", n, r.limits.Output)
	}
	if r.work += n; r.work > r.limits.Work {
		r.failAsf(Limit, "more than %d bytes of work", r.limits.Work)
	}
}

// read counts the work of looking through a text.
func (r *run) read(s string) { r.step(len(s) / 64) }

// times is n*size, a large number where that overflows or n is negative beyond meaning.
func times(n, size int) int {
	const huge = 1 << 60
	if n <= 0 || size <= 0 {
		return 0
	}
	if n > huge/size {
		return huge
	}
	return n * size
}

// enter goes one level deeper; the result of it is deferred.
func (r *run) enter() func() {
	if r.depth++; r.depth > r.limits.Depth {
		r.failAsf(Limit, "nested more than %d deep", r.limits.Depth)
	}
	return func() { r.depth-- }
}

func (r *run) write(text string) {
	if r.out.Len()+len(text) > r.limits.Output {
		r.failAsf(Limit, "more than %d bytes of output", r.limits.Output)
	}
	r.reserve(len(text))
	r.out.WriteString(text)
}

// capture renders what f writes into a text of its own.
func (r *run) capture(f func()) string {
	outer := r.out
	r.out = new(strings.Builder)
	f()
	text := r.out.String()
	r.out = outer
	return text
}

// within runs f in a scope below parent.
func (r *run) within(parent *scope, f func()) {
	outer := r.scope
	r.scope = &scope{parent: parent}
	f()
	r.scope = outer
}
