package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

type tupleOpts struct {
	cond  bool     // inline if is allowed
	paren bool     // inside parentheses, where () is an empty tuple
	ends  []string // names that end it
}

// tuple reads an expression, or several separated by commas.
func (p *parser) tuple(o tupleOpts) expr {
	read := p.or
	if o.cond {
		read = p.expr
	}
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			if !p.isOp(",") {
				break
			}
			p.pos++
			comma = true
		}
		if p.tupleEnds(o.ends) {
			break
		}
		items = append(items, read())
	}
	if !comma {
		if len(items) == 1 {
			return items[0]
		}
		if !o.paren {
			p.failf("expected an expression, got %q", p.cur())
		}
	}
	return &listExpr{items: items, tuple: true}
}

// expr reads an expression with inline ifs.
func (p *parser) expr() expr {
	defer p.nest()()
	e := p.or()
	for p.skipName("if") {
		c := &condExpr{then: e, test: p.or()}
		if p.skipName("else") {
			c.orElse = p.expr()
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.skipName("or") {
		e = &logicExpr{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.skipName("and") {
		e = &logicExpr{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expr {
	if p.skipName("not") {
		defer p.nest()()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	line := p.cur().line
	first := p.sum()
	var ops []comparison
	for {
		op := ""
		switch t := p.cur(); {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			op = t.text
			p.pos++
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.tokens[p.pos+1].kind == tokName && p.tokens[p.pos+1].text == "in":
			p.pos += 2
			op = "not in"
		}
		if op == "" {
			break
		}
		ops = append(ops, comparison{op, p.sum()})
	}
	if ops == nil {
		return first
	}
	return &compareExpr{line, first, ops}
}

// binary reads operands separated by operators of one rank, left to right.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	e := operand()
	for {
		t := p.cur()
		found := false
		for _, op := range ops {
			found = found || t.kind == tokOp && t.text == op
		}
		if !found {
			return e
		}
		p.pos++
		e = &binaryExpr{t.line, t.text, e, operand()}
	}
}

func (p *parser) sum() expr     { return p.binary(p.concat, "+", "-") }
func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) concat() expr {
	first := p.product()
	if !p.isOp("~") {
		return first
	}
	c := &concatExpr{items: []expr{first}}
	for p.skipOp("~") {
		c.items = append(c.items, p.product())
	}
	return c
}

// unary reads a signed operand. Filters bind weaker than the sign: -1|abs is 1.
func (p *parser) unary(filters bool) expr {
	defer p.nest()()
	var e expr
	line := p.cur().line
	switch {
	case p.skipOp("-"):
		e = &signExpr{line, true, p.unary(false)}
	case p.skipOp("+"):
		e = &signExpr{line, false, p.unary(false)}
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	for filters {
		switch {
		case p.skipOp("|"):
			e = p.filter(e)
		case p.skipName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
	return e
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		return p.nameOrConst(t)
	case tokString:
		var text strings.Builder
		text.WriteString(t.text)
		for p.cur().kind == tokString {
			text.WriteString(p.next().text)
		}
		return &constExpr{text.String()}
	case tokInt:
		return &constExpr{parseInt(t)}
	case tokFloat:
		f, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil && f == 0 {
			failSyntaxf(t.line, "the number %s: %v", t.text, err)
		}
		return &constExpr{f}
	case tokOp:
		switch t.text {
		case "(":
			defer p.nest()()
			e := p.tuple(tupleOpts{cond: true, paren: true})
			p.expectOp(")")
			return e
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	failSyntaxf(t.line, "unexpected %q", t)
	return nil
}

func (p *parser) nameOrConst(t token) expr {
	switch t.text {
	case "true", "True":
		return &constExpr{true}
	case "false", "False":
		return &constExpr{false}
	case "none", "None":
		return &constExpr{nil}
	}
	for _, m := range p.macros {
		switch t.text {
		case "caller":
			m.caller = true
		case "kwargs":
			m.kwargs = true
		case "varargs":
			m.varargs = true
		}
	}
	return &nameExpr{t.line, t.text}
}

func parseInt(t token) any {
	v, ok := new(big.Int).SetString(strings.ReplaceAll(t.text, "_", ""), 0)
	if len(t.text) > maxDigits {
		ok = false
	}
	if !ok {
		// A run of zeros is a number too.
		if strings.Trim(t.text, "0_") == "" {
			return int64(0)
		}
		failSyntaxf(t.line, "the number %s cannot be read", t.text)
	}
	return normInt(v)
}

func (p *parser) list() expr {
	l := &listExpr{}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			p.expectOp(",")
			if p.isOp("]") {
				break
			}
		}
		l.items = append(l.items, p.expr())
	}
	p.expectOp("]")
	return l
}

func (p *parser) dict() expr {
	d := &dictExpr{line: p.cur().line}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
			if p.isOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expr())
		p.expectOp(":")
		d.values = append(d.values, p.expr())
	}
	p.expectOp("}")
	return d
}

func (p *parser) postfix(e expr) expr {
	for {
		switch {
		case p.isOp("."):
			line := p.next().line
			t := p.next()
			switch t.kind {
			case tokName:
				e = &attrExpr{line, e, t.text}
			case tokInt:
				e = &itemExpr{line, e, &constExpr{parseInt(t)}}
			default:
				failSyntaxf(t.line, "expected a name or number after the dot, got %q", t)
			}
		case p.isOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(e expr) expr {
	line := p.next().line
	var args []expr
	for !p.isOp("]") {
		if len(args) > 0 {
			p.expectOp(",")
		}
		args = append(args, p.index())
	}
	p.expectOp("]")
	if len(args) == 1 {
		return &itemExpr{line, e, args[0]}
	}
	return &itemExpr{line, e, &listExpr{items: args, tuple: true}}
}

// index reads an expression or a slice.
func (p *parser) index() expr {
	s := &sliceExpr{}
	if !p.isOp(":") {
		e := p.expr()
		if !p.isOp(":") {
			return e
		}
		s.start = e
	}
	p.expectOp(":")
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.stop = p.expr()
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.step = p.expr()
	}
	return s
}

func (p *parser) call(e expr) expr {
	line := p.cur().line
	return &callExpr{line, e, p.args()}
}

func (p *parser) args() argList {
	var a argList
	p.expectOp("(")
	for first := true; !p.isOp(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			p.require(a.star == nil && a.starStar == nil)
			a.star = p.expr()
		case p.skipOp("**"):
			p.require(a.starStar == nil)
			a.starStar = p.expr()
		case p.cur().kind == tokName && p.tokens[p.pos+1].kind == tokOp && p.tokens[p.pos+1].text == "=":
			p.require(a.starStar == nil)
			name := p.ident()
			p.pos++
			a.names = append(a.names, name)
			a.named = append(a.named, p.expr())
		default:
			p.require(a.star == nil && a.starStar == nil && a.names == nil)
			a.pos = append(a.pos, p.expr())
		}
	}
	p.expectOp(")")
	return a
}

func (p *parser) require(ok bool) {
	if !ok {
		p.failf("invalid order of arguments in a call")
	}
}

func (p *parser) dotted() string {
	parts := []string{p.ident()}
	for p.skipOp(".") {
		parts = append(parts, p.ident())
	}
	return strings.Join(parts, ".")
}

// filter reads a filter behind its bar; on is nil where a block's text is filtered.
func (p *parser) filter(on expr) *filterExpr {
	f := &filterExpr{line: p.cur().line, on: on, name: p.dotted()}
	var ok bool
	if f.fn, ok = p.filters[f.name]; !ok {
		failSyntaxf(f.line, "unknown filter %q", f.name)
	}
	if p.isOp("(") {
		f.args = p.args()
	}
	return f
}

func (p *parser) test(on expr) expr {
	line := p.cur().line
	negated := p.skipName("not")
	t := &testExpr{line: line, on: on, name: p.dotted()}
	var ok bool
	if t.fn, ok = p.tests[t.name]; !ok {
		failSyntaxf(line, "unknown test %q", t.name)
	}
	switch c := p.cur(); {
	case p.isOp("("):
		t.args = p.args()
	case c.kind == tokName && (c.text == "else" || c.text == "or" || c.text == "and"):
	case c.kind == tokName && c.text == "is":
		p.failf("tests cannot be chained with is")
	case c.kind == tokName, c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, p.isOp("["), p.isOp("{"):
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}
