package spandelta

import (
	"bytes"
	"errors"
	"hash/crc32"
	"slices"
	"sort"

	"github.com/agl-go/agl/internal/rawjson"
)

// Outlines reads some members of documents in time proportional to what each document adds to its base: what is copied is
// not looked at again. It belongs to one goroutine.
//
// The members that it selects are those of one object of the document. Of the document's other members all are read.
type Outlines struct {
	*Expander

	sums     *sums
	object   string
	selected func(name string) bool
	known    map[*node]*outline
}

// NewOutlines returns Outlines that read the spans that stored returns, see [NewExpander]. Object names the member of a
// document whose members are read if selected returns true for their names.
func NewOutlines(codec *Codec, object string, selected func(name string) bool, stored func(id string) (Stored, bool)) *Outlines {
	return &Outlines{NewExpander(codec, stored), newSums(), object, selected, map[*node]*outline{}}
}

// Outline is what was read from a document.
type Outline struct {
	// Head is the document up to the first member of the object, and Tail what comes after the last.
	Head, Tail []byte
	// Members are the object's members that were selected, in order.
	Members []Member
}

// Member is a member of an object.
type Member struct {
	Name  []byte // as it is spelled between the quotes
	Value *Value
}

// errForm says that a document is not written as spans are: with nothing between a value and what ends it, and with the object
// that is read.
var errForm = errors.New("the document has another form")

// Outline returns the outline of a span's document. A document without the object is all Head.
func (o *Outlines) Outline(id string) (Outline, error) {
	n, err := o.node(id)
	if err != nil {
		return Outline{}, err
	}
	if n.document == nil {
		if err := o.link(n); err != nil {
			return Outline{}, err
		}
	}
	// The bases come first. A chain is longer than what should be put on the stack.
	var path []*node
	for ; n != nil && o.known[n] == nil; n = n.base {
		path = append(path, n)
	}
	made := o.known[n]
	for _, n := range slices.Backward(path) {
		if made, err = o.outline(n, made); err != nil {
			return Outline{}, err
		}
		o.known[n] = made
	}
	if !made.formed {
		return o.outlineWhole(id)
	}
	out := Outline{Head: made.head, Tail: made.tail, Members: make([]Member, 0, len(made.selected))}
	for _, m := range made.selected {
		out.Members = append(out.Members, Member{m.name, m.value})
	}
	return out, nil
}

// outlineWhole returns the outline of a document that has another form.
func (o *Outlines) outlineWhole(id string) (Outline, error) {
	document, err := o.Expand(id)
	if err != nil {
		return Outline{}, err
	}
	var object rawjson.Member
	rawjson.EachMember(document, func(m rawjson.Member) {
		if rawjson.NameIs(m.Name, o.object) {
			object = m
		}
	})
	if len(object.Value) == 0 || object.Value[0] != '{' {
		return Outline{Head: document}, nil
	}
	out := Outline{Head: document[:object.ValueStart+1], Tail: document[object.End-1:]}
	for name, value := range rawjson.Members(object.Value) {
		if o.selected(rawjson.UnquoteName(name)) {
			out.Members = append(out.Members, Member{name, newValue(value)})
		}
	}
	return out, nil
}

// outline is what is known about a document: its pieces, and the places of the members of the
// object.
type outline struct {
	base     *outline
	size     int
	pieces   []outlinePiece
	prefixes map[int]uint32 // checksums of the first bytes, up to places within copied pieces that were asked for
	formed   bool           // what follows is known
	head     []byte
	tail     []byte
	runs     []run // of members, in order
	selected []placed
}

// outlinePiece is a piece of a document with checksums.
type outlinePiece struct {
	piece

	sum     uint32 // of the document up to the end of the piece
	fromSum uint32 // of the base's document up to from
	first   byte
}

// run is some members of the object, one after the other with a comma in between.
type run struct {
	start, end int
	from       int     // the place in the base where it is the same
	member     *member // the one member that it is, if it is not from the base
}

// member is a member whose text is in one place.
type member struct {
	name     []byte
	value    *Value
	before   int // bytes that precede the value; Python writes spaces among them
	selected bool
}

// placed is a member at its place in a document.
type placed struct {
	*member

	start int
}

func (m *member) size() int { return m.before + m.value.Size() }

// start is the offset of a piece.
func (o *outline) start(piece int) int {
	if piece == 0 {
		return 0
	}
	return o.pieces[piece-1].end
}

// pieceAt returns the index of the piece that has a byte of the document.
func (o *outline) pieceAt(at int) int {
	return sort.Search(len(o.pieces), func(i int) bool { return o.pieces[i].end > at })
}

// outline makes the outline of a document, given that of its base.
func (o *Outlines) outline(n *node, base *outline) (*outline, error) {
	made := &outline{base: base}
	var pieces []piece
	if n.delta != nil {
		pieces = n.delta.pieces
	} else if len(n.document) > 0 {
		pieces = []piece{{end: len(n.document), text: n.document}}
	}
	sum := uint32(0)
	for _, p := range pieces {
		size := p.end - made.size
		next := outlinePiece{piece: p}
		if p.text != nil {
			sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), p.text)
			next.first = p.text[0]
		} else {
			if p.from+size > base.size {
				return nil, errOutside(p.from+size, base.size)
			}
			next.fromSum = base.prefixSum(o.sums, p.from)
			next.first = base.byteAt(p.from)
			sum = o.sums.of(sum, o.sums.between(next.fromSum, base.prefixSum(o.sums, p.from+size), size), size)
		}
		next.sum = sum
		made.pieces = append(made.pieces, next)
		made.size = p.end
	}
	if n.delta != nil && sum != n.delta.sum {
		return nil, errSum
	}
	w := outliner{made, o.object, o.selected}
	made.formed = w.walk() == nil
	return made, nil
}

// prefixSum returns the checksum of the first n bytes.
func (o *outline) prefixSum(s *sums, n int) uint32 {
	if n == 0 {
		return 0
	}
	i := o.pieceAt(n - 1)
	p := &o.pieces[i]
	if n == p.end {
		return p.sum
	}
	before, size := uint32(0), n-o.start(i)
	if i > 0 {
		before = o.pieces[i-1].sum
	}
	if p.text != nil {
		return crc32.Update(before, crc32.MakeTable(crc32.Castagnoli), p.text[:size])
	}
	// The documents that continue this one ask for the same place: without this each would go down the chain.
	sum, known := o.prefixes[n]
	if !known {
		sum = s.of(before, s.between(p.fromSum, o.base.prefixSum(s, p.from+size), size), size)
		if o.prefixes == nil {
			o.prefixes = map[int]uint32{}
		}
		o.prefixes[n] = sum
	}
	return sum
}

func (o *outline) byteAt(at int) byte {
	for {
		if at < len(o.head) {
			return o.head[at]
		}
		i := o.pieceAt(at)
		p := &o.pieces[i]
		switch start := o.start(i); {
		case at == start && p.first != 0:
			return p.first
		case p.text != nil:
			return p.text[at-start]
		default:
			o, at = o.base, p.from+at-start
		}
	}
}

// appendRange appends a part of the document.
func (o *outline) appendRange(dst []byte, from, to int) []byte {
	if n := len(o.head); from < n {
		dst = append(dst, o.head[from:min(to, n)]...)
		from = n
	}
	if tail := o.size - len(o.tail); from < to && to > tail && o.tail != nil {
		if from < tail {
			dst = o.appendRange(dst, from, tail)
			from = tail
		}
		return append(dst, o.tail[from-tail:to-tail]...)
	}
	for i := o.pieceAt(from); from < to; i++ {
		p, start := &o.pieces[i], o.start(i)
		end := min(p.end, to)
		if p.text != nil {
			dst = append(dst, p.text[from-start:end-start]...)
		} else {
			dst = o.base.appendRange(dst, p.from+from-start, p.from+end-start)
		}
		from = end
	}
	return dst
}

// runAt returns the index of the run that has a byte of the document, or -1.
func (o *outline) runAt(at int) int {
	i := sort.Search(len(o.runs), func(i int) bool { return o.runs[i].end > at })
	if i == len(o.runs) || o.runs[i].start > at {
		return -1
	}
	return i
}

// membersFrom returns the end of the last of the members that begin at some place, one after the other, and end by a limit;
// from itself if there is none. Next is the byte after the end, or 0 if that is not known.
func (o *outline) membersFrom(from, limit int) (end int, next byte) {
	end = from
	i := o.runAt(from)
	if i < 0 {
		return from, 0
	}
	for at := from; i < len(o.runs); i++ {
		r := &o.runs[i]
		switch {
		case at == r.start && r.end <= limit:
			end = r.end
		case r.member != nil:
			return end, separator(end, from)
		default:
			shift := r.start - r.from
			inBase, _ := o.base.membersFrom(at-shift, min(limit, r.end)-shift)
			if inBase+shift > at {
				end = inBase + shift
			}
		}
		if end < r.end {
			return end, separator(end, from)
		}
		at = end + 1
	}
	return end, '}'
}

// separator is what follows a member that is not the last one.
func separator(end, from int) byte {
	if end == from {
		return 0
	}
	return ','
}

// memberAt returns the member that begins at some place, nil if none does.
func (o *outline) memberAt(at int) *member {
	for {
		i := o.runAt(at)
		if i < 0 {
			return nil
		}
		r := &o.runs[i]
		if r.member != nil {
			if at != r.start {
				return nil
			}
			return r.member
		}
		o, at = o.base, r.from+at-r.start
	}
}

// outliner reads the members of a document.
type outliner struct {
	*outline

	object string
	wanted func(name string) bool
}

func (w *outliner) walk() error {
	at, err := w.walkHead()
	if err != nil {
		return err
	}
	w.head = w.appendRange(make([]byte, 0, at), 0, at)
	if next, err := w.byte(at); err != nil {
		return err
	} else if next != '}' {
		if at, err = w.walkObject(at); err != nil {
			return err
		}
	}
	w.tail = w.appendRange(make([]byte, 0, w.size-at), at, w.size)
	return w.checkOnce()
}

// walkHead reads the members before the object, and returns where those in it begin.
func (w *outliner) walkHead() (at int, err error) {
	if first, err := w.byte(0); err != nil || first != '{' {
		return 0, errForm
	}
	for at = 1; ; at++ {
		_, end, entered, err := w.member(at, w.object)
		if err != nil || entered {
			return end, err
		}
		if next, err := w.byte(end); err != nil || next != ',' {
			return 0, errForm
		}
		at = end
	}
}

// checkOnce reports errForm unless the document is complete and has the object once.
func (w *outliner) checkOnce() error {
	objects := 0
	whole := slices.Concat(w.head, w.tail)
	if !rawjson.EachMember(whole, func(m rawjson.Member) {
		if rawjson.NameIs(m.Name, w.object) {
			objects++
		}
	}) || objects != 1 {
		return errForm
	}
	return nil
}

// walkObject reads the members of the object, and returns the place of the bracket after them.
func (w *outliner) walkObject(at int) (end int, err error) {
	for {
		next := byte(0)
		i := w.pieceAt(at)
		if i == len(w.pieces) {
			return 0, errForm
		}
		p := &w.pieces[i]
		from, limit := p.from+at-w.start(i), p.from+p.end-w.start(i)
		end = at
		if p.text == nil && w.base.formed {
			var inBase int
			if inBase, next = w.copied(from, limit, p.end); inBase > from {
				end = at + inBase - from
				w.inherit(run{start: at, end: end, from: from})
			} else if m := w.base.memberAt(from); m != nil {
				if end, err = w.longer(m, at, limit-from); err != nil {
					return 0, err
				}
				next = 0
			}
		}
		if end == at {
			m, after, _, err := w.member(at, "")
			if err != nil {
				return 0, err
			}
			m.selected = w.wanted(rawjson.UnquoteName(m.name))
			w.add(m, at)
			end = after
		}
		if next == 0 {
			if next, err = w.byte(end); err != nil {
				return 0, err
			}
		}
		switch next {
		case ',':
			at = end + 1
		case '}':
			return end, nil
		default:
			return 0, errForm
		}
	}
}

// copied is membersFrom of the base, for a piece that is copied up to a limit and ends in the document at end.
func (w *outliner) copied(from, limit, end int) (inBase int, next byte) {
	inBase, next = w.base.membersFrom(from, limit)
	if inBase < limit || inBase == from {
		return inBase, next
	}
	// What follows is not copied. If it is no separator, the last member is a number that goes on.
	if next, err := w.byte(end); err == nil && (next == ',' || next == '}') {
		return inBase, next
	}
	return w.base.membersFrom(from, limit-1)
}

// inherit adds members of the base.
func (w *outliner) inherit(r run) {
	w.runs = append(w.runs, r)
	of := w.base.selected
	i := sort.Search(len(of), func(i int) bool { return of[i].start >= r.from })
	for ; i < len(of) && of[i].start < r.from+r.end-r.start; i++ {
		w.selected = append(w.selected, placed{of[i].member, of[i].start + r.start - r.from})
	}
}

// add adds a member.
func (w *outliner) add(m *member, at int) {
	w.runs = append(w.runs, run{start: at, end: at + m.size(), member: m})
	if m.selected {
		w.selected = append(w.selected, placed{m, at})
	}
}

// longer adds a member that begins with the bytes of a member of the base. It returns the end of the member, or its place if
// it must be read like any other.
func (w *outliner) longer(base *member, at, same int) (end int, err error) {
	shared := same - base.before
	if shared < 1 || shared >= base.value.Size() {
		return at, nil
	}
	first := base.value.first // at(0) would go down the chain
	if first != '"' && !base.value.plainList {
		return at, nil
	}
	from := at + same
	for view := w.view(from); view.grow(); {
		n := -1
		switch {
		case first == '[':
			n = bytes.IndexByte(view.text, ']') + 1
			if !isPlain(view.text[:max(n, 0)]) {
				return at, nil
			}
		case !base.value.escapes(shared):
			n = rawjson.SkipString(view.text, -1)
		case len(view.text) > 1:
			n = rawjson.SkipString(view.text, 0)
		}
		if n > 0 {
			w.add(&member{base.name, base.value.extended(shared, view.text[:n:n]), base.before, base.selected}, at)
			return from + n, nil
		}
	}
	return 0, errForm
}

// member reads the member at some place. If it is an object of the name enter, end is the place after its
// opening bracket.
func (w *outliner) member(at int, enter string) (m *member, end int, entered bool, err error) {
	for view := w.view(at); view.grow(); {
		text := view.text
		start := rawjson.SkipSpace(text, 0)
		if start == len(text) {
			continue
		}
		if text[start] != '"' {
			return nil, 0, false, errForm
		}
		name := rawjson.SkipString(text, start)
		if name < 0 || name == len(text) {
			continue
		}
		if text[name] != ':' {
			return nil, 0, false, errForm
		}
		value := rawjson.SkipSpace(text, name+1)
		if value == len(text) {
			continue
		}
		m = &member{name: text[start+1 : name-1 : name-1], before: value}
		if enter != "" && text[value] == '{' && rawjson.NameIs(m.name, enter) {
			return m, at + value + 1, true, nil
		}
		n := rawjson.SkipValue(text, value)
		// A number may go on where the text ends.
		if n < 0 || n == len(text) && !isClosed(text[value]) && at+n < w.size {
			continue
		}
		m.value = newValue(text[value:n:n])
		return m, at + n, false, nil
	}
	return nil, 0, false, errForm
}

// isClosed reports whether values that begin with a byte have an end of their own.
func isClosed(first byte) bool { return first == '"' || first == '[' || first == '{' }

func (w *outliner) byte(at int) (byte, error) {
	if at >= w.size {
		return 0, errForm
	}
	return w.byteAt(at), nil
}

// view returns an empty view of the document that begins at some place.
func (w *outliner) view(at int) *view { return &view{outline: w.outline, from: at, to: at} }

// view is a part of a document that grows as more of it is needed: first by what takes no copy, and then by as much as it has.
// Of what is copied from a base it reads as little as possible.
type view struct {
	*outline

	from, to int
	text     []byte
}

// grow reports whether the view is larger now.
func (v *view) grow() bool {
	const least = 256
	o := v.outline
	if v.to >= o.size {
		return false
	}
	i := o.pieceAt(v.to)
	p, start := &o.pieces[i], o.start(i)
	if p.text != nil && v.from == v.to {
		v.text, v.to = p.text[v.to-start:], p.end
		return true
	}
	to := min(p.end, v.to+max(least, v.to-v.from))
	if p.text == nil {
		inBase := p.from + v.to - start
		if head := len(o.base.head); inBase < head {
			to = min(to, v.to+head-inBase)
		}
	}
	v.text = o.appendRange(slices.Clip(v.text), v.to, to)
	v.to = to
	return true
}
