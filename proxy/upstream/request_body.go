package upstream

import (
	"errors"
	"io"
)

// ErrTooLong is the error of [ReadBody] for a body that is longer than the limit.
var ErrTooLong = errors.New("body too long")

// FirstRead is the initial buffer size for a body of unknown length, and for any body of
// a client that is not trusted.
const FirstRead = 64 << 10

// ReadBody reads a body of at most limit bytes into the memory of buf, or into new
// memory. length is negative when it is unknown. With an error it returns what it
// has read so far.
func ReadBody(body io.Reader, buf []byte, length, limit int64) ([]byte, error) {
	if length < 0 || length > limit {
		return ReadUntrusted(body, singleBuffer(buf), length, limit, func(int) error { return nil })
	}
	buf = roomFor(buf, int(length))[:length]
	n, err := io.ReadFull(body, buf)
	return buf[:n], err
}

// Memory lends buffers.
type Memory interface {
	Take(n int) []byte // of n bytes or more; nil or less if there is none
	Put(b []byte)
}

// singleBuffer lends itself only. Its borrower looks whether it is large enough.
type singleBuffer []byte

func (b singleBuffer) Take(int) []byte { return b }
func (singleBuffer) Put([]byte)        {}

// ReadUntrusted is [ReadBody] for a client that may announce more than it sends: beyond
// FirstRead, memory is taken as bytes arrive. grow is called before each step with the bytes
// that it adds; its error ends the reading. A short body is read into new memory.
func ReadUntrusted(body io.Reader, memory Memory, length, limit int64, grow func(n int) error) ([]byte, error) {
	if length > limit {
		return nil, ErrTooLong
	}
	if length >= 0 && length <= FirstRead {
		return ReadBody(body, nil, length, limit)
	}
	buf := roomFor(memory.Take(FirstRead), FirstRead)
	for room := FirstRead; int64(len(buf)) != length; {
		if len(buf) == room {
			size := 4 * room // few and large steps, because each may copy everything
			if length >= 0 {
				size = min(2*size, int(length))
			}
			if int64(size) > limit {
				size = int(limit) + 1
			}
			if err := grow(size - room); err != nil {
				return buf, err
			}
			if room = size; cap(buf) < room {
				small := buf
				buf = append(roomFor(memory.Take(room), room), small...)
				memory.Put(small)
			}
		}
		n, err := body.Read(buf[len(buf):room])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, ErrTooLong
		case int64(len(buf)) == length:
			return buf, nil
		case err == io.EOF && length >= 0:
			return buf, io.ErrUnexpectedEOF
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
	return buf, nil
}

// roomFor returns an empty buffer of at least n bytes: buf, if it is large enough.
// Unlike [slices.Grow] it does not clear new memory.
func roomFor(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, 0, n)
	}
	return buf[:0]
}
