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
	"github.com/agl-go/agl/internal/rawjson"
)

// MaxLine is the longest line of a JSON Lines file, in bytes.
const MaxLine = 16 << 20

// ErrEmpty says that a task file holds no task.
var ErrEmpty = errors.New("the dataset is empty")

// Load reads the JSON Lines file at path: one JSON value per line. It skips blank lines, and accepts a byte order
// mark and CRLF line ends.
//
// A line that is not exactly one JSON value is agl.ErrInvalid with a message "path:line: what is wrong". That includes
// invalid UTF-8, repeated object keys, and anything after the value. A file without a task is agl.ErrInvalid and [ErrEmpty];
// a file that cannot be opened is the error of package os.
func Load(path string) (agl.Tasks, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err) // err says that it was to be opened
	}
	tasks, err := Read(f, path)
	return tasks, errors.Join(err, f.Close())
}

// Read is [Load] for a reader. Errors contain name instead of the path.
func Read(r io.Reader, name string) (agl.Tasks, error) {
	s := &source{path: name}
	return collect(s.jsonl(r), name)
}

// collect reads all records of the file of that name.
func collect(records iter.Seq2[jsontext.Value, error], name string) (agl.Tasks, error) {
	var tasks agl.Tasks
	for task, err := range records {
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	if len(tasks) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: %w: it has no task", name, ErrEmpty)
	}
	return tasks, nil
}

// numbered is a value with the number of its line, counted from 1.
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
				if bytes.HasPrefix(line, []byte("\xff\xfe")) || bytes.HasPrefix(line, []byte("\xfe\xff")) { // as > of Windows PowerShell writes
					yield(numbered{}, agl.Errorf(agl.CodeInvalid, "%s: the file is in UTF-16, must be in UTF-8", name))
					return
				}
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

// jsonl yields the tasks of a JSON Lines stream, with the checks of [Load]. It ends with the first error, which it
// yields.
func (s *source) jsonl(r io.Reader) iter.Seq2[jsontext.Value, error] {
	return func(yield func(jsontext.Value, error) bool) {
		for line, err := range numberedLines(r, s.path) {
			if err == nil && s.options.Columns != nil {
				line.value, err = s.pick(line)
			}
			if !yield(line.value, err) || err != nil {
				return
			}
		}
	}
}

// pick returns a task with the wanted members of the object.
func (s *source) pick(line numbered) (jsontext.Value, error) {
	if line.value.Kind() != '{' {
		return nil, agl.Errorf(agl.CodeInvalid, "%s:%d: got %s, must be an object, from which the columns are picked",
			s.path, line.number, excerpt(line.value))
	}
	o := rawjson.NewObject(nil)
	for _, c := range s.options.Columns {
		value, ok := rawjson.Get(line.value, c.Name)
		if !ok {
			return nil, agl.Errorf(agl.CodeInvalid, "%s:%d: the object has no member %q", s.path, line.number, c.Name)
		}
		o.AnyKey(c.As)
		o = append(o, value...)
	}
	return o.End(), nil
}

// checkValue returns an error if a line is not exactly one JSON value.
func checkValue(line []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(line))
	if err := dec.SkipValue(); err != nil {
		return describe(line, err)
	}
	if rest := bytes.TrimLeft(line[dec.InputOffset():], " \t"); len(rest) > 0 {
		return fmt.Errorf("column %d: %s follows the value; a line holds exactly one JSON value",
			position(line, len(line)-len(rest)), excerpt(rest))
	}
	return nil
}

// describe makes an error of the decoder one about the line.
func describe(line []byte, err error) error {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return err
	}
	offset := min(int(syntax.ByteOffset), len(line))
	cause := syntax.Err
	if errors.Is(cause, io.ErrUnexpectedEOF) {
		return fmt.Errorf("column %d: the line ends inside a JSON value that begins with %s", position(line, len(line)), excerpt(line))
	}
	if syntax.JSONPointer != "" {
		return fmt.Errorf("column %d: not valid JSON at %s: %w, got %s", position(line, offset), syntax.JSONPointer, cause, excerpt(line[offset:]))
	}
	return fmt.Errorf("column %d: not valid JSON: %w, got %s", position(line, offset), cause, excerpt(line[offset:]))
}

// position returns the column of an offset: in characters, counted from 1, as editors do.
func position(line []byte, offset int) int {
	return utf8.RuneCount(line[:offset]) + 1
}
