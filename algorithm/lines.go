package algorithm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json"
)

// Metrics is a JSON Lines file of reports, each an object with the member step. A
// nil one writes nothing.
type Metrics struct{ f *os.File }

// OpenMetrics opens or makes the file and cuts off what was written after the
// step from which the run goes on: the line of the first step beyond it, or a
// line that is not whole, and all that follows. Step 0 keeps nothing.
func OpenMetrics(path string, step int) (*Metrics, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	keep := int64(0)
	if step > 0 {
		keep, err = lengthUpTo(f, step)
	}
	if err == nil {
		err = f.Truncate(keep)
	}
	if err == nil {
		_, err = f.Seek(keep, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open metrics: %w", err), f.Close())
	}
	return &Metrics{f}, nil
}

// lengthUpTo returns the number of bytes up to and with the line of a step.
func lengthUpTo(r io.Reader, step int) (int64, error) {
	keep := int64(0)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return keep, nil
		}
		if err != nil {
			return 0, err
		}
		if at, ok := stepOf(line); !ok || at > step {
			return keep, nil
		}
		keep += int64(len(line))
	}
}

// stepOf returns the step that a line is about; ok is false for a broken line.
func stepOf(line []byte) (step int, ok bool) {
	var head struct {
		Step *int `json:"step"`
	}
	if err := json.Unmarshal(line, &head); err != nil || head.Step == nil {
		return 0, false
	}
	return *head.Step, true
}

// Write appends a line.
func (m *Metrics) Write(report any) error {
	if m == nil {
		return nil
	}
	line, err := json.Marshal(report, json.Deterministic(true))
	if err == nil {
		_, err = m.f.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// Sync makes what was written durable, so that a checkpoint never knows of a
// step whose line is lost.
func (m *Metrics) Sync() error {
	if m == nil {
		return nil
	}
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// Close closes the file.
func (m *Metrics) Close() error {
	if m == nil {
		return nil
	}
	return m.f.Close()
}
