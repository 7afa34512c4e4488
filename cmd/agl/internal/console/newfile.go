package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agl-go/agl/internal/durable"
)

// IsOutput reports whether a path is standard output: a dash, or a name of it such as /dev/stdout. A file that standard output was
// redirected to is a file.
func IsOutput(path string) bool {
	if path == "-" {
		return true
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
		return false
	}
	given, err := os.Stat(path)
	if err != nil {
		return false
	}
	output, err := os.Stdout.Stat()
	return err == nil && os.SameFile(given, output)
}

// WriteFile writes to standard output, a character device, a named pipe or a new file, which has its name only once it is complete. Another
// file that exists at the path is an error and stays as it is.
func (c *Console) WriteFile(ctx context.Context, path string, write func(w io.Writer) error) (err error) {
	if IsOutput(path) {
		return write(c.Out)
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&(os.ModeCharDevice|os.ModeNamedPipe) != 0 {
		there, err := openForWriting(ctx, path)
		if err != nil {
			return err
		}
		return errors.Join(write(there), there.Close())
	}
	taken := fmt.Errorf("%s: the file exists; name a new one", path)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	partial, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if failed, ok := errors.AsType[*fs.PathError](err); ok { // without the name of the partial file
		err = fmt.Errorf("%s: must be in a folder that exists and can be written to: %w", path, failed.Err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partial.Name()) // it is incomplete
		}
	}()
	err = write(partial)
	if err == nil {
		err = partial.Sync()
	}
	if closed := partial.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := durable.Publish(partial.Name(), path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return taken
}

// openForWriting opens a device or a named pipe. Opening a pipe waits for its reader, until ctx ends.
func openForWriting(ctx context.Context, path string) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	opened := make(chan result)
	go func() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		select {
		case opened <- result{file, err}:
		case <-ctx.Done():
			if err == nil {
				_ = file.Close() // nothing was written
			}
		}
	}()
	select {
	case r := <-opened:
		return r.file, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
