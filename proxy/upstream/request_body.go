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
		return ReadUntrusted(body, buf, length, limit, func(int) error { return nil })
	}
	buf = roomFor(buf, int(length))[:length]
	n, err := io.ReadFull(body, buf)
	return buf[:n], err
}

// ReadUntrusted is [ReadBody] for a client that may announce more than it sends: beyond
// FirstRead, memory grows as bytes arrive. grow is called before each step with the bytes
// that it adds; its error ends the reading.
func ReadUntrusted(body io.Reader, buf []byte, length, limit int64, grow func(n int) error) ([]byte, error) {
	if length > limit {
		return nil, ErrTooLong
	}
	if length >= 0 && length <= FirstRead {
		return ReadBody(body, buf, length, limit)
	}
	buf = roomFor(buf, FirstRead)
	for int64(len(buf)) != length {
		if len(buf) == cap(buf) {
			size := 4 * len(buf) // few and large steps, because each copies everything
			if int64(size) > limit {
				size = int(limit) + 1
			}
			if length >= 0 {
				size = min(size, int(length))
			}
			if err := grow(size - len(buf)); err != nil {
				return buf, err
			}
			buf = append(make([]byte, 0, size), buf...)
		}
		end := cap(buf)
		if length >= 0 {
			end = min(end, int(length))
		}
		n, err := body.Read(buf[len(buf):end])
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
