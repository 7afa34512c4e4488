//go:build !unix

package process

// copyErrors passes on standard error to its end in the background.
func (k *kept) copyErrors() {
	k.drainErrors = func() {} // a pipe cannot be read without waiting on this system
	k.copy(k.stderr, writerFunc(func(b []byte) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.errorText(b)
	}))
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
