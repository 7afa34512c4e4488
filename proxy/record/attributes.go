package record

// AppendAttributes appends the attributes of the span that stands for the model call,
// for a caller that records calls in one span of its own.
func (b *Builder) AppendAttributes(dst []byte, in *Input, at *Position) []byte {
	x := b.read(in, at.Previous)
	x.identify(in, at)
	a := newAttrs(dst)
	modelCall(a, in, at, &x)
	if cap(b.reply) > keptBytes {
		b.reply = nil
	}
	return a.done()
}
