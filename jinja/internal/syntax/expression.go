package syntax

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// constants are the names of literals.
var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

type tupleOpts struct {
	cond  bool     // inline if is allowed
	paren bool     // inside parentheses, where () is an empty tuple
	ends  []string // names that end it
}

// tuple reads an expression, or several separated by commas.
func (p *parser) tuple(o tupleOpts) Expr {
	read := p.or
	if o.cond {
		read = p.expr
	}
	var items []Expr
	comma := false
	for !p.tupleEnds(o.ends) {
		items = append(items, read())
		if !p.skip(",") {
			break
		}
		comma = true
	}
	if !comma {
		if len(items) == 1 {
			return items[0]
		}
		if !o.paren {
			p.failf("expected an expression, got %q", p.cur())
		}
	}
	return &List{Items: items, Tuple: true}
}

// tupleEnds reports whether the current token ends a tuple.
func (p *parser) tupleEnds(names []string) bool {
	switch t := p.cur(); t.kind {
	case tokVarEnd, tokBlockEnd, tokEOF:
		return true
	case tokName:
		return slices.Contains(names, t.text)
	default:
		return t.is(")") || t.is("=")
	}
}

// The functions from expr to primary read one level of precedence each, the lowest first.

func (p *parser) expr() Expr {
	defer p.nest()()
	e := p.or()
	for p.skip("if") {
		c := &Cond{Then: e, Test: p.or()}
		if p.skip("else") {
			c.Else = p.expr()
		}
		e = c
	}
	return e
}

// binary reads operands separated by operators of one precedence, which associate to the left.
func (p *parser) binary(operand func() Expr, ops ...string) Expr {
	e := operand()
	for {
		t := p.cur()
		if !slices.ContainsFunc(ops, t.is) {
			return e
		}
		p.pos++
		e = &Binary{t.line, t.text, e, operand()}
	}
}

func (p *parser) or() Expr  { return p.binary(p.and, "or") }
func (p *parser) and() Expr { return p.binary(p.not, "and") }

func (p *parser) not() Expr {
	if line := p.cur().line; p.skip("not") {
		defer p.nest()()
		return &Unary{line, "not", p.not()}
	}
	return p.compare()
}

func (p *parser) compare() Expr {
	c := &Compare{Line: p.cur().line, First: p.sum()}
	for {
		t := p.cur()
		switch {
		case slices.ContainsFunc([]string{"==", "!=", "<", "<=", ">", ">=", "in"}, t.is):
			p.pos++
		case t.is("not") && p.ahead().is("in"):
			p.pos += 2
			t.text = "not in"
		case c.Rest == nil:
			return c.First
		default:
			return c
		}
		c.Rest = append(c.Rest, Comparison{t.text, p.sum()})
	}
}

func (p *parser) sum() Expr     { return p.binary(p.concat, "+", "-") }
func (p *parser) concat() Expr  { return p.binary(p.product, "~") }
func (p *parser) product() Expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() Expr {
	return p.binary(func() Expr { return p.unary(true) }, "**")
}

// unary reads an operand with signs. A sign binds more tightly than a filter: -1|abs is 1.
func (p *parser) unary(filters bool) Expr {
	defer p.nest()()
	var e Expr
	if t := p.cur(); t.is("-") || t.is("+") {
		p.pos++
		e = &Unary{t.line, t.text, p.unary(false)}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	for filters {
		switch {
		case p.skip("|"):
			e = p.filter(e)
		case p.skip("is"):
			e = p.test(e)
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
	return e
}

func (p *parser) primary() Expr {
	t := p.next()
	switch {
	case t.kind == tokName:
		return p.nameOrConst(t)
	case t.kind == tokString:
		text := []string{t.text}
		for p.cur().kind == tokString {
			text = append(text, p.next().text)
		}
		return &Const{strings.Join(text, "")}
	case t.kind == tokInt:
		return &Const{parseInt(t)}
	case t.kind == tokFloat:
		f, _ := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64) // out of range it is an infinity, as in Python
		return &Const{f}
	case t.is("("):
		defer p.nest()()
		e := p.tuple(tupleOpts{cond: true, paren: true})
		p.expect(")")
		return e
	case t.is("["):
		l := &List{}
		p.list("]", true, func() { l.Items = append(l.Items, p.expr()) })
		p.expect("]")
		return l
	case t.is("{"):
		d := &Dict{Line: t.line}
		p.list("}", true, func() {
			d.Keys = append(d.Keys, p.expr())
			p.expect(":")
			d.Values = append(d.Values, p.expr())
		})
		p.expect("}")
		return d
	}
	failf(t.line, "unexpected %q", t)
	return nil
}

func (p *parser) nameOrConst(t token) Expr {
	if v, ok := constants[t.text]; ok {
		return &Const{v}
	}
	for _, m := range p.macros {
		m.Caller = m.Caller || t.text == "caller"
		m.Kwargs = m.Kwargs || t.text == "kwargs"
		m.Varargs = m.Varargs || t.text == "varargs"
	}
	return &Name{t.line, t.text}
}

func parseInt(t token) any {
	text := strings.ReplaceAll(t.text, "_", "")
	if strings.Trim(text, "0") == "" {
		return int64(0)
	}
	v, ok := new(big.Int).SetString(text, 0)
	switch {
	case !ok || len(t.text) > pytext.MaxDigits:
		failf(t.line, "invalid number %s", t.text)
	case v.IsInt64():
		return v.Int64()
	}
	return v
}

func (p *parser) postfix(e Expr) Expr {
	for {
		switch line := p.cur().line; {
		case p.skip("."):
			switch t := p.next(); t.kind {
			case tokName:
				e = &Attr{line, e, t.text}
			case tokInt:
				e = &Item{line, e, &Const{parseInt(t)}}
			default:
				failf(t.line, "expected a name or number after the dot, got %q", t)
			}
		case p.skip("["):
			var keys []Expr
			p.list("]", false, func() { keys = append(keys, p.index()) })
			p.expect("]")
			key := Expr(&List{Items: keys, Tuple: true})
			if len(keys) == 1 {
				key = keys[0]
			}
			e = &Item{line, e, key}
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// index reads an expression or a slice.
func (p *parser) index() Expr {
	s := &Slice{}
	if !p.is(":") {
		e := p.expr()
		if !p.is(":") {
			return e
		}
		s.Start = e
	}
	part := func() Expr {
		if p.is(":") || p.is("]") || p.is(",") {
			return nil
		}
		return p.expr()
	}
	p.expect(":")
	s.Stop = part()
	if p.skip(":") {
		s.Step = part()
	}
	return s
}

func (p *parser) call(e Expr) Expr {
	line := p.cur().line
	return &Call{line, e, p.args()}
}

func (p *parser) args() (a Args) {
	require := func(ok bool) {
		if !ok {
			p.failf("invalid order of arguments in a call")
		}
	}
	p.expect("(")
	p.list(")", true, func() {
		require(a.StarStar == nil)
		switch {
		case p.skip("*"):
			require(a.Star == nil)
			a.Star = p.expr()
		case p.skip("**"):
			a.StarStar = p.expr()
		case p.cur().kind == tokName && p.ahead().is("="):
			name := p.ident()
			p.expect("=")
			a.Named = append(a.Named, NamedArg{name, p.expr()})
		default:
			require(a.Star == nil && a.Named == nil)
			a.Positional = append(a.Positional, p.expr())
		}
	})
	p.expect(")")
	return a
}

// known reads the name of a filter or test, which may contain dots.
func (p *parser) known(what string, exists func(name string) bool) string {
	line, name := p.cur().line, p.ident()
	for p.skip(".") {
		name += "." + p.ident()
	}
	if !exists(name) {
		failf(line, "unknown %s %q", what, name)
	}
	return name
}

// filter reads a filter after its bar.
func (p *parser) filter(on Expr) *Filter {
	f := &Filter{Line: p.cur().line, On: on, Name: p.known("filter", p.isFilter)}
	if p.is("(") {
		f.Args = p.args()
	}
	return f
}

// test reads a test after its "is". A single argument needs no parentheses, as in n is divisibleby 3.
func (p *parser) test(on Expr) Expr {
	line, negated := p.cur().line, p.skip("not")
	t := &Test{Line: line, On: on, Name: p.known("test", p.isTest)}
	switch c := p.cur(); {
	case c.is("("):
		t.Args = p.args()
	case c.is("else"), c.is("or"), c.is("and"):
	case c.is("is"):
		p.failf("tests cannot be chained with is")
	case c.kind == tokName, c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, c.is("["), c.is("{"):
		t.Args.Positional = []Expr{p.postfix(p.primary())}
	}
	if negated {
		return &Unary{line, "not", t}
	}
	return t
}
