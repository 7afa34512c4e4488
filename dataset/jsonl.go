package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// MaxLine is the longest line of a JSONL file, in bytes.
const MaxLine = 16 << 20

// ErrEmpty says that a task file holds no task.
var ErrEmpty = errors.New("the dataset is empty")

// Load reads the JSON Lines file at path: one JSON value a line, blank lines
// skipped, a byte order mark and CRLF line ends allowed. Every line is checked
// while the file is read.
//
// A line that is not one JSON value (invalid UTF-8, a repeated object key and
// anything after the value included) is agl.ErrInvalid with a message
// "path:line: what is wrong"; a file without a task is agl.ErrInvalid and
// [ErrEmpty]; a file that cannot be opened is the os package's error.
func Load(path string) (agl.Tasks, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open dataset: %w", err)
	}
	tasks, err := Read(f, path)
	return tasks, errors.Join(err, f.Close())
}

// Read is [Load] for a reader; name stands for the path in errors.
func Read(r io.Reader, name string) (agl.Tasks, error) {
	var tasks agl.Tasks
	for task, err := range Lines(r, name) {
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	if len(tasks) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: %w: it has no line with a task", name, ErrEmpty)
	}
	return tasks, nil
}

// Lines yields the values of a JSON Lines stream one by one, checked as [Load]
// says, so that a file larger than memory can be gone through. It ends at the
// first error, which it yields. A value belongs to the receiver.
func Lines(r io.Reader, name string) iter.Seq2[jsontext.Value, error] {
	return func(yield func(jsontext.Value, error) bool) {
		for line, err := range numberedLines(r, name) {
			if !yield(line.value, err) {
				return
			}
		}
	}
}

// numbered is a value and the line it stands in, from 1.
type numbered struct {
	value  jsontext.Value
	number int
}

func numberedLines(r io.Reader, name string) iter.Seq2[numbered, error] {
	return func(yield func(numbered, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 64<<10), MaxLine)
		number := 0
		for lines.Scan() {
			number++
			line := lines.Bytes()
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			line = bytes.Trim(line, " \t\r")
			if len(line) == 0 {
				continue
			}
			if err := checkValue(line); err != nil {
				yield(numbered{}, agl.Errorf(agl.CodeInvalid, "%s:%d: %w", name, number, err))
				return
			}
			if !yield(numbered{bytes.Clone(line), number}, nil) {
				return
			}
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(numbered{}, agl.Errorf(agl.CodeInvalid, "%s:%d: the line is longer than %d bytes", name, number+1, MaxLine))
		case err != nil:
			yield(numbered{}, fmt.Errorf("%s:%d: read: %w", name, number+1, err))
		}
	}
}

// checkValue says what keeps a line from being exactly one JSON value.
func checkValue(line []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(line))
	if err := dec.SkipValue(); err != nil {
		return describe(line, err)
	}
	if rest := bytes.TrimLeft(line[dec.InputOffset():], " \t"); len(rest) > 0 {
		return fmt.Errorf("column %d: %s follows the value; a line holds exactly one JSON value",
			column(line, len(line)-len(rest)), excerpt(rest))
	}
	return nil
}

// describe turns the decoder's error into one that speaks of the line.
func describe(line []byte, err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err
	}
	offset := min(int(syntax.ByteOffset), len(line))
	cause := syntax.Err
	if errors.Is(cause, io.ErrUnexpectedEOF) {
		return fmt.Errorf("column %d: the line ends inside a JSON value that begins with %s", column(line, len(line)), excerpt(line))
	}
	if syntax.JSONPointer != "" {
		return fmt.Errorf("column %d: not valid JSON at %s: %w, got %s", column(line, offset), syntax.JSONPointer, cause, excerpt(line[offset:]))
	}
	return fmt.Errorf("column %d: not valid JSON: %w, got %s", column(line, offset), cause, excerpt(line[offset:]))
}

// column counts characters, from 1, as editors do.
func column(line []byte, offset int) int {
	return utf8.RuneCount(line[:offset]) + 1
}

func excerpt(b []byte) string {
	const most = 40
	if len(b) <= most {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%q…", b[:most])
}
