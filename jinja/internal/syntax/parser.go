package syntax

// parser reads tokens into statements and expressions.
type parser struct {
	tokens []token
	pos    int
	depth  int
	loops  int // enclosing loops, for break and continue

	isFilter, isTest func(name string) bool
	// macros are the enclosing macros, innermost last.
	macros []*Macro
}

// maxNesting bounds how deeply the source may nest.
const maxNesting = 200

func (p *parser) failf(format string, args ...any) { failf(p.cur().line, format, args...) }

func (p *parser) cur() token { return p.tokens[p.pos] }

// ahead returns the token after the current one.
func (p *parser) ahead() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.cur()
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

// nest limits how deeply the source nests. Callers defer its result.
func (p *parser) nest() func() {
	if p.depth++; p.depth > maxNesting {
		p.failf("nesting exceeds %d levels", maxNesting)
	}
	return func() { p.depth-- }
}

// is reports whether t is an operator, a keyword or the end of a tag with this text.
func (t token) is(text string) bool {
	return t.text == text && t.kind != tokData && t.kind != tokString
}

func (p *parser) is(text string) bool { return p.cur().is(text) }

// skip moves over the current token if it has this text.
func (p *parser) skip(text string) bool {
	ok := p.is(text)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) expect(text string) {
	if !p.skip(text) {
		p.failf("expected %q, got %q", text, p.cur())
	}
}

func (p *parser) ident() string {
	t := p.cur()
	if t.kind != tokName {
		p.failf("expected a name, got %q", t)
	}
	p.pos++
	return t.text
}

// list reads items separated by commas, up to a closing token.
func (p *parser) list(end string, trailingComma bool, item func()) {
	for first := true; !p.is(end); first = false {
		if !first {
			p.expect(",")
			if trailingComma && p.is(end) {
				return
			}
		}
		item()
	}
}
