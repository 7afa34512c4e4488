package spandelta

import (
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Stored is a span as it is stored.
type Stored struct {
	Base    string // the id of the base; empty if Payload is the document itself
	Payload []byte // the document, or the delta from the base's
}

// Expander gives the documents of spans back. It keeps the deltas that it has read and a few
// documents. It belongs to one goroutine.
type Expander struct {
	codec  *Codec
	stored func(id string) (Stored, bool)
	nodes  map[string]*node
	recent []*node // whose documents are kept
	oldest int     // of recent
}

// keptDocuments is how many expanded documents an Expander keeps. What continues one of them
// needs no more of the chain behind it.
const keptDocuments = 16

// node is a span that was read.
type node struct {
	document []byte // nil if it is not expanded
	delta    *decoded
	baseID   string
	base     *node // nil until it is needed
}

// NewExpander returns an Expander that asks stored for spans by their ids, each once.
func NewExpander(codec *Codec, stored func(id string) (Stored, bool)) *Expander {
	return &Expander{codec: codec, stored: stored, nodes: map[string]*node{}}
}

// MissingError says that a span, or one of its bases, is not there.
type MissingError struct{ ID string }

func (e *MissingError) Error() string { return "span " + e.ID + ", which it continues, is missing" }

var errSum = errors.New("the document that its delta gives does not match its checksum")

func errOutside(to, size int) error {
	return fmt.Errorf("it continues %d bytes of a document of %d", to, size)
}

// Append appends the document that a delta gives from the document of its base, and returns how
// many bytes of it are the base's. After an error dst is as it was.
func (c *Codec) Append(dst, base, delta []byte) (_ []byte, copied int, err error) {
	d, err := c.decode(delta)
	if err != nil {
		return dst, 0, err
	}
	n := node{delta: d, base: &node{document: base}}
	from := len(dst)
	out, err := n.appendRange(slices.Grow(dst, d.size), 0, d.size)
	if err != nil {
		return dst, 0, err
	}
	if Sum(out[from:]) != d.sum {
		return dst, 0, errSum
	}
	start := 0
	for _, p := range d.pieces {
		if p.text == nil {
			copied += p.end - start
		}
		start = p.end
	}
	return out, copied, nil
}

// Expand returns the document of a span. The bases in between are not expanded: only those
// parts of them are read that the document has.
func (e *Expander) Expand(id string) ([]byte, error) {
	n, err := e.node(id)
	if err != nil {
		return nil, err
	}
	if n.document != nil {
		return n.document, nil
	}
	if err := e.link(n); err != nil {
		return nil, err
	}
	document, err := n.appendRange(make([]byte, 0, n.delta.size), 0, n.delta.size)
	if err != nil {
		return nil, err
	}
	if Sum(document) != n.delta.sum {
		return nil, errSum
	}
	n.document = document
	if len(e.recent) < keptDocuments {
		e.recent = append(e.recent, n)
	} else {
		e.recent[e.oldest].document = nil
		e.recent[e.oldest] = n
		e.oldest = (e.oldest + 1) % keptDocuments
	}
	return document, nil
}

func (e *Expander) node(id string) (*node, error) {
	if n, known := e.nodes[id]; known {
		return n, nil
	}
	s, found := e.stored(id)
	if !found {
		return nil, &MissingError{id}
	}
	n := &node{document: s.Payload, baseID: s.Base}
	if s.Base != "" {
		var err error
		n.document = nil
		if n.delta, err = e.codec.decode(s.Payload); err != nil {
			return nil, err
		}
	}
	e.nodes[id] = n
	return n, nil
}

// link reads the chain of bases behind a node, up to the first document. A chain that does not
// end there stays as it was.
func (e *Expander) link(n *node) error {
	path := []*node{n}
	seen := map[*node]struct{}{}
	for ; n.document == nil && n.base == nil; n = path[len(path)-1] {
		if _, circle := seen[n]; circle {
			return fmt.Errorf("it continues span %q, which continues it", n.baseID)
		}
		seen[n] = struct{}{}
		base, err := e.node(n.baseID)
		if err != nil {
			return err
		}
		path = append(path, base)
	}
	for i := len(path) - 1; i > 0; i-- {
		path[i-1].base = path[i]
	}
	return nil
}

// appendRange appends a part of the document.
func (n *node) appendRange(dst []byte, from, to int) ([]byte, error) {
	if n.document != nil {
		if to > len(n.document) {
			return nil, errOutside(to, len(n.document))
		}
		return append(dst, n.document[from:to]...), nil
	}
	pieces := n.delta.pieces
	if to > n.delta.size {
		return nil, errOutside(to, n.delta.size)
	}
	for i := sort.Search(len(pieces), func(i int) bool { return pieces[i].end > from }); from < to; i++ {
		p := &pieces[i]
		start := 0
		if i > 0 {
			start = pieces[i-1].end
		}
		end := min(p.end, to)
		if p.text != nil {
			dst = append(dst, p.text[from-start:end-start]...)
		} else {
			var err error
			if dst, err = n.base.appendRange(dst, p.from+from-start, p.from+end-start); err != nil {
				return nil, err
			}
		}
		from = end
	}
	return dst, nil
}
