package jinja

// stmt is a statement.
type stmt interface{ exec(r *run) jump }

// jump says how a statement ends.
type jump int

const (
	goOn jump = iota
	breakLoop
	continueLoop
)

// target is what is assigned to: a name, an attribute of a namespace, or several targets.
type target struct {
	name, attr string
	list       []target
}

type (
	dataStmt   struct{ text string }
	outputStmt struct {
		line  int
		value expr
	}
	scopeStmt struct{ body []stmt }
	jumpStmt  struct{ isBreak bool }
	ifStmt    struct {
		line         int
		test         expr
		body, orElse []stmt
	}
	forStmt struct {
		line         int
		target       target
		iter, test   expr
		recursive    bool
		body, orElse []stmt
	}
	// setStmt assigns a value, or a rendered body with filters; without a target it prints the body.
	setStmt struct {
		line    int
		target  target
		value   expr
		filters []*filterExpr
		body    []stmt
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	macroStmt struct{ node *macroNode }
	callStmt  struct {
		line int
		call *callExpr
		body *macroNode
	}
)

// block runs statements up to a jump.
func (r *run) block(body []stmt) jump {
	defer r.enter()()
	for _, s := range body {
		r.step(1)
		if j := s.exec(r); j != goOn {
			return j
		}
	}
	return goOn
}

func (s *dataStmt) exec(r *run) jump {
	r.write(s.text)
	return goOn
}

func (s *outputStmt) exec(r *run) jump {
	r.line = s.line
	v := r.eval(s.value)
	r.write(r.text(v))
	return goOn
}

func (s *scopeStmt) exec(r *run) jump {
	r.within(r.scope, func() { r.block(s.body) })
	return goOn
}

func (s *jumpStmt) exec(*run) jump {
	if s.isBreak {
		return breakLoop
	}
	return continueLoop
}

func (s *ifStmt) exec(r *run) jump {
	r.line = s.line
	if r.truth(r.eval(s.test)) {
		return r.block(s.body)
	}
	return r.block(s.orElse)
}

func (s *setStmt) exec(r *run) jump {
	r.line = s.line
	if s.value != nil {
		r.assign(s.target, r.eval(s.value))
		return goOn
	}
	var text any = r.capture(func() {
		r.within(r.scope, func() { r.block(s.body) })
	})
	for _, f := range s.filters {
		text = f.apply(r, text)
	}
	if s.target.name == "" && s.target.list == nil {
		r.write(r.text(text))
	} else {
		r.assign(s.target, text)
	}
	return goOn
}

func (s *withStmt) exec(r *run) jump {
	r.line = s.line
	values := make([]any, len(s.values))
	for i, v := range s.values {
		values[i] = r.eval(v)
	}
	var j jump
	r.within(r.scope, func() {
		for i, t := range s.targets {
			r.assign(t, values[i])
		}
		j = r.block(s.body)
	})
	return j
}

func (s *macroStmt) exec(r *run) jump {
	r.scope.set(s.node.name, &macro{s.node, r.scope})
	return goOn
}

func (s *callStmt) exec(r *run) jump {
	r.line = s.line
	fn := r.eval(s.call.fn)
	args := r.args(s.call.args)
	args.names = append(args.names, "caller")
	args.named = append(args.named, &macro{s.body, r.scope})
	r.line = s.line
	r.write(r.text(r.call(fn, args)))
	return goOn
}

// assign sets a target.
func (r *run) assign(t target, v any) {
	switch {
	case t.list != nil:
		items := r.iterate(v)
		if len(items) != len(t.list) {
			r.failf("%d values to unpack into %d names", len(items), len(t.list))
		}
		for i, t := range t.list {
			r.assign(t, items[i])
		}
	case t.attr != "":
		obj, _ := r.scope.get(t.name)
		ns, ok := obj.(*namespace)
		if !ok {
			r.failf("cannot assign attribute on non-namespace object")
		}
		ns.set(r, t.attr, v)
	default:
		r.scope.set(t.name, v)
	}
}

func (s *forStmt) exec(r *run) jump {
	r.line = s.line
	over := r.eval(s.iter)
	r.line = s.line
	s.loop(r, over, 0)
	return goOn
}

// loop runs the statement over a value, at a depth of recursion.
func (s *forStmt) loop(r *run, over any, depth int) {
	defer r.enter()()
	items := r.iterate(over)
	outer := r.scope
	if s.test != nil {
		items = s.filter(r, items)
	}
	l := &loop{items: items, depth: depth}
	if s.recursive {
		l.recurse = func(r *run, over any) any {
			return r.capture(func() {
				inner := r.scope
				r.scope = outer
				s.loop(r, over, depth+1)
				r.scope = inner
			})
		}
	}
	completed := false // as the reference has it: a round that ends by break or continue is none
	for i, item := range items {
		r.step(1)
		l.at = i
		var j jump
		r.within(outer, func() {
			r.scope.set("loop", l)
			r.assign(s.target, item)
			j = r.block(s.body)
		})
		if j == breakLoop {
			break
		}
		completed = completed || j == goOn
	}
	if !completed {
		r.within(outer, func() { r.block(s.orElse) })
	}
}

// filter keeps the items that pass the loop's own if, which does not see the loop variable.
func (s *forStmt) filter(r *run, items []any) []any {
	var kept []any
	for _, item := range items {
		r.within(r.scope, func() {
			r.assign(s.target, item)
			if r.truth(r.eval(s.test)) {
				kept = append(kept, item)
			}
		})
	}
	return kept
}
