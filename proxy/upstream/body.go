package upstream

import (
	"errors"
	"io"
)

// ErrTooLong is the error of [ReadBody] for a body that is longer than the limit.
var ErrTooLong = errors.New("body too long")

// firstRead is the initial buffer size for a body of unknown length.
const firstRead = 64 << 10

// ReadBody reads a body of at most limit bytes into the memory of buf, or into new
// memory. length is negative when it is unknown. With an error it returns what it
// has read so far.
func ReadBody(body io.Reader, buf []byte, length, limit int64) ([]byte, error) {
	if length > limit {
		return nil, ErrTooLong
	}
	if length >= 0 {
		buf = roomFor(buf, int(length))[:length]
		n, err := io.ReadFull(body, buf)
		return buf[:n], err
	}
	buf = roomFor(buf, firstRead)
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 4*len(buf)), buf...) // few and large steps, because each copies everything
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, ErrTooLong
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// roomFor returns an empty buffer of at least n bytes: buf, if it is large enough.
// Unlike [slices.Grow] it does not clear new memory.
func roomFor(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, 0, n)
	}
	return buf[:0]
}
