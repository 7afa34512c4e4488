package algorithm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-json-experiment/json"
)

// Lines is a JSON Lines file that a run appends to: its metrics, or a journal. A
// nil one writes nothing. It is safe for concurrent use.
type Lines struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLines opens or creates the file and passes its lines to accept, in order. The file is truncated at the first line that
// accept returns false for, or at a last line without a newline, which an interrupted write leaves.
func OpenLines(path string, accept func(line []byte) (bool, error)) (*Lines, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lines: %w", err)
	}
	size, err := acceptLines(file, accept)
	if err == nil {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), file.Close())
	}
	return &Lines{file: file}, nil
}

// acceptLines returns the number of bytes of the lines that are accepted.
func acceptLines(r io.Reader, accept func(line []byte) (bool, error)) (size int64, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return 0, err
		}
		if ok, err := accept(line); !ok || err != nil {
			return size, err
		}
		size += int64(len(line))
	}
}

// ReadLines decodes every line of a file. A file that does not exist has none,
// and a last line without a newline is left out.
func ReadLines[T any](path string) (values []T, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = acceptLines(file, func(line []byte) (bool, error) {
		var value T
		if err := json.Unmarshal(line, &value); err != nil {
			return false, fmt.Errorf("%s:%d: %w", path, len(values)+1, err)
		}
		values = append(values, value)
		return true, nil
	})
	return values, err
}

// Append writes a value as one line.
func (l *Lines) Append(value any) error {
	if l == nil {
		return nil
	}
	line, err := json.Marshal(value, json.Deterministic(true))
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("append a line: %w", err)
	}
	return nil
}

// Sync makes the lines durable.
func (l *Lines) Sync() error {
	if l == nil {
		return nil
	}
	return l.file.Sync()
}

// Close makes the lines durable and closes the file.
func (l *Lines) Close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.file.Sync(), l.file.Close())
}
