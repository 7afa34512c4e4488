package syntax

import "slices"

// Parse parses a source. The functions report which filters and tests exist.
func Parse(source string, isFilter, isTest func(name string) bool) (body []Stmt, err *Error) {
	// Inside the package an error is a panic, as in text/template: nearly every function can fail.
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			body, err = nil, e
		default:
			panic(e)
		}
	}()
	p := &parser{tokens: lex(source), isFilter: isFilter, isTest: isTest}
	return p.statements(), nil
}

// statements reads up to the end of the template, or up to a tag that begins with one of the names, which then is the
// current token.
func (p *parser) statements(until ...string) []Stmt {
	defer p.nest()()
	var out []Stmt
	for {
		t := p.next()
		switch t.kind {
		case tokData:
			out = append(out, &Data{t.text})
		case tokVarBegin:
			out = append(out, &Output{t.line, p.tuple(tupleOpts{cond: true})})
			p.expect("}}")
		case tokBlockBegin:
			if p.cur().kind == tokName && slices.Contains(until, p.cur().text) {
				return out
			}
			out = append(out, p.statement())
			p.expect("%}")
		default:
			if len(until) > 0 {
				p.failf("expected %q, got %s", until, t)
			}
			return out
		}
	}
}

// body reads the end of an opening tag, the statements of its block, and the name that ends the block.
func (p *parser) body(until ...string) (body []Stmt, end string) {
	p.expect("%}")
	body = p.statements(until...)
	return body, p.ident()
}

func (p *parser) statement() Stmt {
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
		m := &Macro{Name: p.ident()}
		p.signature(m)
		p.macroBody(m, "endmacro")
		return m
	case "call":
		return p.callBlock(line)
	case "filter":
		s := &Set{Line: line, Filters: []*Filter{p.filter(nil)}}
		p.filteredBody(s, "endfilter")
		return s
	case "print":
		s := &Scope{}
		p.list("%}", false, func() { s.Body = append(s.Body, &Output{line, p.expr()}) })
		return s
	case "generation":
		body, _ := p.body("endgeneration")
		return &Scope{body}
	case "break", "continue":
		if p.loops == 0 {
			failf(line, "%s outside of a loop", keyword)
		}
		return &Jump{keyword == "break"}
	case "extends", "include", "import", "from", "block", "autoescape":
		failf(line, "the tag %q is not supported", keyword)
	default:
		failf(line, "unknown tag %q", keyword)
	}
	return nil
}

func (p *parser) forLoop(line int) Stmt {
	f := &For{Line: line, Target: p.target("in")}
	p.expect("in")
	f.Over = p.tuple(tupleOpts{ends: []string{"recursive"}})
	if p.skip("if") {
		f.Test = p.expr()
	}
	f.Recursive = p.skip("recursive")
	p.loops++
	body, end := p.body("endfor", "else")
	p.loops--
	f.Body = body
	if end == "else" {
		f.Else, _ = p.body("endfor")
	}
	return f
}

func (p *parser) ifElse(line int) Stmt {
	s := &If{Line: line, Test: p.tuple(tupleOpts{})}
	body, end := p.body("elif", "else", "endif")
	s.Body = body
	switch end {
	case "elif":
		defer p.nest()()
		s.Else = []Stmt{p.ifElse(p.cur().line)}
	case "else":
		s.Else, _ = p.body("endif")
	}
	return s
}

func (p *parser) set(line int) Stmt {
	s := &Set{Line: line, Target: p.target()}
	if p.skip("=") {
		s.Value = p.tuple(tupleOpts{cond: true})
		return s
	}
	p.filteredBody(s, "endset")
	return s
}

// filteredBody reads filters, each after a bar, and the body that they apply to.
func (p *parser) filteredBody(s *Set, end string) {
	for p.skip("|") {
		s.Filters = append(s.Filters, p.filter(nil))
	}
	s.Body, _ = p.body(end)
}

func (p *parser) with(line int) Stmt {
	s := &With{Line: line}
	p.list("%}", false, func() {
		s.Targets = append(s.Targets, p.target())
		p.expect("=")
		s.Values = append(s.Values, p.expr())
	})
	s.Body, _ = p.body("endwith")
	return s
}

func (p *parser) macroBody(m *Macro, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	m.Body, _ = p.body(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
}

func (p *parser) signature(m *Macro) {
	p.expect("(")
	p.list(")", false, func() {
		param := Param{Name: p.ident()}
		if p.skip("=") {
			param.Default = p.expr()
		} else if n := len(m.Params); n > 0 && m.Params[n-1].Default != nil {
			p.failf("a parameter without a default follows one with a default")
		}
		m.Params = append(m.Params, param)
	})
	p.expect(")")
}

func (p *parser) callBlock(line int) Stmt {
	m := &Macro{}
	if p.is("(") {
		p.signature(m)
	}
	call, ok := p.expr().(*Call)
	if !ok {
		failf(line, "expected a call")
	}
	p.macroBody(m, "endcall")
	return &CallBlock{line, call, m}
}

// target reads the left side of an assignment: a name, several names, or an attribute of a namespace.
func (p *parser) target(ends ...string) Target {
	if p.cur().kind == tokName && p.ahead().is(".") {
		t := Target{Name: p.ident()}
		p.expect(".")
		t.Attr = p.ident()
		return t
	}
	var list []Target
	comma := false
	for !p.tupleEnds(ends) {
		list = append(list, p.targetItem())
		if !p.skip(",") {
			break
		}
		comma = true
	}
	if len(list) == 0 {
		p.failf("expected a name to assign to, got %q", p.cur())
	}
	if len(list) == 1 && !comma {
		return list[0]
	}
	return Target{List: list}
}

func (p *parser) targetItem() Target {
	if p.skip("(") {
		defer p.nest()()
		t := p.target()
		p.expect(")")
		return t
	}
	name := p.ident()
	if _, ok := constants[name]; ok {
		p.failf("cannot assign to %q", name)
	}
	return Target{Name: name}
}
