package jinja

import "slices"

// parser reads tokens into statements. Its grammar is that of Jinja2 3.1.
type parser struct {
	tokens []token
	pos    int
	depth  int
	loops  int

	filters map[string]builtin
	tests   map[string]builtin
	// macros are those whose bodies are being read, innermost last.
	macros []*macroNode
}

func (p *parser) cur() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) failf(format string, args ...any) { failSyntaxf(p.cur().line, format, args...) }

// nest guards against sources that nest deeper than the stack should; the result of it is deferred.
func (p *parser) nest() func() {
	if p.depth++; p.depth > maxNesting {
		p.failf("nested more than %d deep", maxNesting)
	}
	return func() { p.depth-- }
}

func (p *parser) isOp(text string) bool   { t := p.cur(); return t.kind == tokOp && t.text == text }
func (p *parser) isName(text string) bool { t := p.cur(); return t.kind == tokName && t.text == text }

func (p *parser) skipOp(text string) bool {
	ok := p.isOp(text)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) skipName(text string) bool {
	ok := p.isName(text)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) expectOp(text string) {
	if !p.skipOp(text) {
		p.failf("expected %q, got %q", text, p.cur())
	}
}

func (p *parser) expectName(text string) {
	if !p.skipName(text) {
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

func (p *parser) expect(kind tokenKind, what string) {
	if p.cur().kind != kind {
		p.failf("expected %s, got %q", what, p.cur())
	}
	p.pos++
}

// statements reads up to the end of the template, or up to a block that begins with one of the names. That
// block's name is the current token then.
func (p *parser) statements(until ...string) []stmt {
	defer p.nest()()
	var out []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokData:
			out = append(out, &dataStmt{t.text})
		case tokVarBegin:
			out = append(out, &outputStmt{t.line, p.tuple(tupleOpts{cond: true})})
			p.expect(tokVarEnd, "}}")
		case tokBlockBegin:
			if p.cur().kind == tokName && slices.Contains(until, p.cur().text) {
				return out
			}
			out = append(out, p.statement())
			p.expect(tokBlockEnd, "%}")
		default:
			if len(until) > 0 {
				p.failf("expected %q, got %s", until, t)
			}
			return out
		}
	}
}

// body reads the statements of a block whose opening tag ends here, and the name that ends it.
func (p *parser) body(until ...string) (body []stmt, end string) {
	p.expect(tokBlockEnd, "%}")
	body = p.statements(until...)
	return body, p.ident()
}

func (p *parser) statement() stmt {
	line := p.cur().line
	switch keyword := p.ident(); keyword {
	case "for":
		return p.forLoop(line)
	case "if":
		return p.ifElse(line)
	case "set":
		return p.set(line)
	case "with":
		return p.with(line)
	case "macro":
		return p.macro(line)
	case "call":
		return p.callBlock(line)
	case "filter":
		return p.filterBlock(line)
	case "print":
		s := &scopeStmt{}
		for p.cur().kind != tokBlockEnd {
			if len(s.body) > 0 {
				p.expectOp(",")
			}
			s.body = append(s.body, &outputStmt{line, p.expr()})
		}
		return s
	case "generation":
		body, _ := p.body("endgeneration")
		return &scopeStmt{body}
	case "break", "continue":
		if p.loops == 0 {
			failSyntaxf(line, "%s outside of a loop", keyword)
		}
		return &jumpStmt{keyword == "break"}
	case "extends", "include", "import", "from", "block", "autoescape":
		failSyntaxf(line, "the tag %q is not supported", keyword)
	default:
		failSyntaxf(line, "unknown tag %q", keyword)
	}
	return nil
}

func (p *parser) forLoop(line int) stmt {
	f := &forStmt{line: line, target: p.target("in")}
	p.expectName("in")
	f.iter = p.tuple(tupleOpts{ends: []string{"recursive"}})
	if p.skipName("if") {
		f.test = p.expr()
	}
	f.recursive = p.skipName("recursive")
	p.loops++
	body, end := p.body("endfor", "else")
	p.loops--
	f.body = body
	if end == "else" {
		f.orElse, _ = p.body("endfor")
	}
	return f
}

func (p *parser) ifElse(line int) stmt {
	s := &ifStmt{line: line, test: p.tuple(tupleOpts{})}
	body, end := p.body("elif", "else", "endif")
	s.body = body
	switch end {
	case "elif":
		defer p.nest()()
		s.orElse = []stmt{p.ifElse(p.cur().line)}
	case "else":
		s.orElse, _ = p.body("endif")
	}
	return s
}

func (p *parser) set(line int) stmt {
	s := &setStmt{line: line, target: p.target()}
	if p.skipOp("=") {
		s.value = p.tuple(tupleOpts{cond: true})
		return s
	}
	for p.isOp("|") {
		p.pos++
		s.filters = append(s.filters, p.filter(nil))
	}
	s.body, _ = p.body("endset")
	return s
}

func (p *parser) with(line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			p.expectOp(",")
		}
		s.targets = append(s.targets, p.target())
		p.expectOp("=")
		s.values = append(s.values, p.expr())
	}
	s.body, _ = p.body("endwith")
	return s
}

func (p *parser) macro(line int) stmt {
	m := &macroNode{line: line, name: p.ident()}
	p.signature(m)
	p.macroBody(m, "endmacro")
	return &macroStmt{m}
}

func (p *parser) macroBody(m *macroNode, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	m.body, _ = p.body(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
}

func (p *parser) signature(m *macroNode) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(m.params) > 0 {
			p.expectOp(",")
		}
		param := param{name: p.ident()}
		if p.skipOp("=") {
			param.def = p.expr()
		} else if n := len(m.params); n > 0 && m.params[n-1].def != nil {
			p.failf("a parameter without a default follows one with a default")
		}
		m.params = append(m.params, param)
	}
	p.expectOp(")")
}

func (p *parser) callBlock(line int) stmt {
	m := &macroNode{line: line}
	if p.isOp("(") {
		p.signature(m)
	}
	call, ok := p.expr().(*callExpr)
	if !ok {
		failSyntaxf(line, "expected a call")
	}
	p.macroBody(m, "endcall")
	return &callStmt{line, call, m}
}

func (p *parser) filterBlock(line int) stmt {
	s := &setStmt{line: line}
	s.filters = append(s.filters, p.filter(nil))
	for p.skipOp("|") {
		s.filters = append(s.filters, p.filter(nil))
	}
	s.body, _ = p.body("endfilter")
	return s
}

// target reads what is assigned to: a name, names separated by commas, or an attribute of a namespace.
func (p *parser) target(ends ...string) target {
	if p.cur().kind == tokName && p.pos+1 < len(p.tokens) && p.tokens[p.pos+1].kind == tokOp && p.tokens[p.pos+1].text == "." {
		t := target{name: p.ident()}
		p.expectOp(".")
		t.attr = p.ident()
		return t
	}
	var list []target
	comma := false
	for !p.tupleEnds(ends) {
		list = append(list, p.targetItem())
		if !p.isOp(",") {
			break
		}
		p.pos++
		comma = true
	}
	if len(list) == 0 {
		p.failf("expected a name to assign to, got %q", p.cur())
	}
	if len(list) == 1 && !comma {
		return list[0]
	}
	return target{list: list}
}

func (p *parser) targetItem() target {
	if p.skipOp("(") {
		defer p.nest()()
		t := p.target()
		p.expectOp(")")
		return t
	}
	switch name := p.ident(); name {
	case "true", "false", "none", "True", "False", "None":
		p.failf("cannot assign to %q", name)
		return target{}
	default:
		return target{name: name}
	}
}

// tupleEnds reports whether the current token ends a tuple.
func (p *parser) tupleEnds(names []string) bool {
	switch t := p.cur(); t.kind {
	case tokVarEnd, tokBlockEnd, tokEOF:
		return true
	case tokOp:
		return t.text == ")" || t.text == "="
	case tokName:
		return slices.Contains(names, t.text)
	default:
		return false
	}
}
