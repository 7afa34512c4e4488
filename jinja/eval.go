package jinja

import (
	"math/big"
	"strings"
)

// expr is an expression.
type expr interface{ eval(r *run) any }

type (
	constExpr struct{ value any }
	nameExpr  struct {
		line int
		name string
	}
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct {
		line         int
		keys, values []expr
	}
	condExpr  struct{ test, then, orElse expr }
	logicExpr struct {
		left, right expr
		or          bool
	}
	notExpr    struct{ on expr }
	comparison struct {
		op string
		to expr
	}
	compareExpr struct {
		line  int
		first expr
		ops   []comparison
	}
	binaryExpr struct {
		line        int
		op          string
		left, right expr
	}
	concatExpr struct{ items []expr }
	signExpr   struct {
		line   int
		negate bool
		on     expr
	}
	attrExpr struct {
		line int
		on   expr
		name string
	}
	itemExpr struct {
		line    int
		on, key expr
	}
	sliceExpr struct{ start, stop, step expr }
	callExpr  struct {
		line int
		fn   expr
		args argList
	}
	filterExpr struct {
		line int
		on   expr
		name string
		fn   builtin
		args argList
	}
	testExpr struct {
		line int
		on   expr
		name string
		fn   builtin
		args argList
	}
)

// eval evaluates e and counts it.
func (r *run) eval(e expr) any {
	r.step(1)
	return e.eval(r)
}

func (e *constExpr) eval(*run) any { return e.value }

func (e *nameExpr) eval(r *run) any {
	r.line = e.line
	if v, ok := r.scope.get(e.name); ok {
		return v
	}
	return &undefined{quote(e.name) + " is undefined"}
}

func (e *listExpr) eval(r *run) any {
	defer r.enter()()
	items := make([]any, len(e.items))
	for i, item := range e.items {
		items[i] = r.eval(item)
	}
	if e.tuple {
		return Tuple(items)
	}
	return &list{items}
}

func (e *dictExpr) eval(r *run) any {
	defer r.enter()()
	d := &Dict{}
	for i, k := range e.keys {
		key := r.eval(k)
		value := r.eval(e.values[i])
		r.line = e.line
		d.put(r.hash(key), key, value)
	}
	return d
}

func (e *condExpr) eval(r *run) any {
	if r.truth(r.eval(e.test)) {
		return r.eval(e.then)
	}
	if e.orElse == nil {
		return &undefined{"the inline if-expression evaluated to false and no else section was defined."}
	}
	return r.eval(e.orElse)
}

func (e *logicExpr) eval(r *run) any {
	left := r.eval(e.left)
	if r.truth(left) == e.or {
		return left
	}
	return r.eval(e.right)
}

func (e *notExpr) eval(r *run) any { return !r.truth(r.eval(e.on)) }

func (e *compareExpr) eval(r *run) any {
	left := r.eval(e.first)
	for _, op := range e.ops {
		right := r.eval(op.to)
		r.line = e.line
		if !r.compare(op.op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (e *binaryExpr) eval(r *run) any {
	left := r.eval(e.left)
	right := r.eval(e.right)
	r.line = e.line
	return r.binary(e.op, left, right)
}

func (e *concatExpr) eval(r *run) any {
	var all strings.Builder
	for _, item := range e.items {
		all.WriteString(r.text(r.eval(item)))
		r.reserve(all.Len())
	}
	return all.String()
}

func (e *signExpr) eval(r *run) any {
	v := r.eval(e.on)
	r.line = e.line
	r.use(v)
	n, ok := asNumber(v)
	if !ok {
		r.failf("bad operand type for unary operator: '%s'", typeName(v))
	}
	if !e.negate {
		return n
	}
	if f, ok := n.(float64); ok {
		return -f
	}
	return normInt(new(big.Int).Neg(toBig(n)))
}

func (e *attrExpr) eval(r *run) any {
	on := r.eval(e.on)
	r.line = e.line
	return r.attr(on, e.name)
}

func (e *itemExpr) eval(r *run) any {
	on := r.eval(e.on)
	if s, ok := e.key.(*sliceExpr); ok {
		r.line = e.line
		return r.slice(on, s.part(r, s.start), s.part(r, s.stop), s.part(r, s.step))
	}
	key := r.eval(e.key)
	r.line = e.line
	return r.item(on, key)
}

func (e *sliceExpr) eval(r *run) any {
	r.failf("a slice stands among other subscripts")
	return nil
}

func (e *sliceExpr) part(r *run, x expr) any {
	if x == nil {
		return nil
	}
	return r.eval(x)
}

func (e *callExpr) eval(r *run) any {
	fn := r.eval(e.fn)
	args := r.args(e.args)
	r.line = e.line
	return r.call(fn, args)
}

func (e *filterExpr) eval(r *run) any {
	return e.apply(r, r.eval(e.on))
}

func (e *filterExpr) apply(r *run, on any) any {
	args := r.args(e.args)
	args.prepend(on)
	r.line = e.line
	return e.fn.call(r, e.name, args)
}

func (e *testExpr) eval(r *run) any {
	args := r.args(e.args)
	args.prepend(r.eval(e.on))
	r.line = e.line
	return r.truth(e.fn.call(r, e.name, args))
}

// attr is obj.name: an attribute, else an element.
func (r *run) attr(obj any, name string) any {
	if v, ok := r.member(obj, name); ok {
		return v
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := d.get(name); ok {
			return v
		}
	}
	return missing(obj, quote(name))
}

// item is obj[key]: an element, else an attribute.
func (r *run) item(obj, key any) any {
	r.use(obj)
	switch o := obj.(type) {
	case *Dict:
		switch key.(type) {
		case *list, *Dict: // unhashable, which the reference takes for a missing element
			return missing(obj, r.repr(key))
		}
		if v, ok := o.get(r.hash(key)); ok {
			return v
		}
	case string, *list, Tuple, span:
		if i, ok := r.position(obj, key); ok {
			return i
		}
	}
	name, ok := key.(string)
	if !ok {
		if u, ok := key.(*undefined); ok {
			return missing(obj, r.repr(u))
		}
		return missing(obj, r.repr(key))
	}
	if v, ok := r.member(obj, name); ok {
		return v
	}
	return missing(obj, quote(name))
}

// missing is what an attribute or element that is not there evaluates to. name is its quoted form.
func missing(obj any, name string) *undefined {
	if obj == nil {
		return &undefined{"None has no attribute " + name}
	}
	return &undefined{"'" + typeName(obj) + " object' has no attribute " + name}
}

// position is the element of a sequence at an index.
func (r *run) position(obj, key any) (any, bool) {
	n, ok := asNumber(key)
	if !ok {
		return nil, false
	}
	i, ok := n.(int64)
	if !ok {
		return nil, false
	}
	size, _ := length(obj)
	if i < 0 {
		i += int64(size)
	}
	if i < 0 || i >= int64(size) {
		return nil, false
	}
	switch o := obj.(type) {
	case string:
		r.read(o)
		return runeAt(o, int(i)), true
	case *list:
		return o.items[i], true
	case Tuple:
		return o[i], true
	default:
		return o.(span).at(int(i)), true
	}
}

// runeAt is the character at an index counted in characters.
func runeAt(s string, i int) string {
	for at, c := range s {
		if i == 0 {
			return s[at : at+runeLen(s[at:], c)]
		}
		i--
	}
	return ""
}

// slice is obj[start:stop:step].
func (r *run) slice(obj, start, stop, step any) any {
	r.use(obj)
	size, ok := length(obj)
	switch obj.(type) {
	case string, *list, Tuple, span:
	default:
		ok = false
	}
	if !ok {
		r.failf("'%s' object cannot be sliced", typeName(obj))
	}
	by := r.sliceBound(step, 1)
	if by == 0 {
		r.failf("slice step cannot be zero")
	}
	low, high := int64(0), int64(size)
	from, to := low, high
	if by < 0 {
		low, high = -1, int64(size)-1
		from, to = high, low
	}
	bound := func(v any, def int64) int64 {
		i := r.sliceBound(v, def)
		if v == nil {
			return def
		}
		if i < 0 {
			i += int64(size)
		}
		return min(max(i, low), high)
	}
	from, to = bound(start, from), bound(stop, to)
	if s, ok := obj.(span); ok {
		return s.slice(from, to, by)
	}
	var at []int
	for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
		at = append(at, int(i))
		if by > 1<<40 || by < -1<<40 {
			break
		}
	}
	r.step(len(at)/16 + 1)
	return r.pick(obj, at)
}

// sliceBound is a bound of a slice as a number.
func (r *run) sliceBound(v any, def int64) int64 {
	if v == nil {
		return def
	}
	switch n, _ := asNumber(v); n := n.(type) {
	case int64:
		const far = 1 << 62 // leaves room to add a length
		return min(max(n, -far), far)
	case *big.Int:
		return int64(n.Sign()) << 61
	}
	r.failf("slice indices must be integers or None or have an __index__ method")
	return 0
}

// slice is the range of the elements from one place up to another.
func (s span) slice(from, to, step int64) span {
	p := span{start: s.start + from*s.step, stop: s.start + to*s.step, step: s.step * step}
	switch {
	case step > 0 && from < to:
		p.n = int((to-from-1)/step) + 1
	case step < 0 && from > to:
		p.n = int((from-to-1)/-step) + 1
	}
	return p
}

// pick gathers the elements of a sequence at the given places.
func (r *run) pick(obj any, at []int) any {
	gather := func(from []any) []any {
		r.reserve(times(len(at), 16))
		out := make([]any, len(at))
		for i, j := range at {
			out[i] = from[j]
		}
		return out
	}
	switch o := obj.(type) {
	case *list:
		return &list{gather(o.items)}
	case Tuple:
		return Tuple(gather(o))
	default:
		chars := []rune(o.(string))
		r.reserve(len(chars))
		out := make([]rune, len(at))
		for i, j := range at {
			out[i] = chars[j]
		}
		return string(out)
	}
}
