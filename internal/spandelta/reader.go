package spandelta

import "encoding/binary"

// Reader reads the parts of a delta, or of a message that contains deltas. What it reads shares the memory of Rest, except texts.
type Reader struct {
	Rest []byte
	Cut  bool // the message ended within a part: that part and all after it are zero
}

// Uvarint reads a number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Cut, r.Rest = true, nil
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Varint reads a number with a sign.
func (r *Reader) Varint() int64 {
	v := r.Uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// Bytes reads n bytes.
func (r *Reader) Bytes(n uint64) []byte {
	if uint64(len(r.Rest)) < n {
		r.Cut, r.Rest = true, nil
		return nil
	}
	out := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return out
}

// Text reads a text that stands after its length.
func (r *Reader) Text() string { return string(r.Bytes(r.Uvarint())) }
