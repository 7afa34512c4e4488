//go:build unix

package process

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// pipeSize is how much a pipe holds.
const pipeSize = 64 << 10

// copyErrors passes on standard error to its end in the background.
func (k *kept) copyErrors() {
	k.drainErrors = func() {}
	conn, err := k.stderr.SyscallConn()
	if err != nil {
		return // it is closed
	}
	buffer := make([]byte, pipeSize)
	k.drainErrors = func() {
		_ = conn.Control(func(fd uintptr) { _ = k.readErrors(fd, buffer) }) // the other goroutine notices an end
	}
	k.streams.Go(func() {
		for err == nil { // the rest after an error is lost
			var failed error
			err = conn.Read(func(fd uintptr) bool {
				k.mu.Lock()
				defer k.mu.Unlock()
				failed = k.readErrors(fd, buffer)
				return !errors.Is(failed, syscall.EAGAIN)
			})
			err = errors.Join(err, failed)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // as in stream
			k.mu.Lock()
			defer k.mu.Unlock()
			k.drainErrors()
		}
	})
}

// readErrors passes on what the pipe of standard error holds. The error is EAGAIN if that is nothing.
func (k *kept) readErrors(fd uintptr, buffer []byte) error {
	n, err := syscall.Read(int(fd), buffer)
	switch {
	case errors.Is(err, syscall.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	k.errorText(buffer[:n])
	return nil
}
