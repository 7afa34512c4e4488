package dataset_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/dataset"
)

func TestRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"objects", "{\"a\":1}\n{\"a\":2}\n", []string{`{"a":1}`, `{"a":2}`}},
		{"bytes are kept", "{ \"b\": 1.0, \"a\":1e400 }\n", []string{`{ "b": 1.0, "a":1e400 }`}},
		{"any value", "1\n\"x\"\nnull\n[1,2]\n", []string{"1", `"x"`, "null", "[1,2]"}},
		{"no final newline", "1\n2", []string{"1", "2"}},
		{"blank lines", "\n1\n\n \t\n2\n\n", []string{"1", "2"}},
		{"crlf", "1\r\n2\r\n", []string{"1", "2"}},
		{"byte order mark", "\xef\xbb\xbf{}\n", []string{"{}"}},
		{"unicode", "\"π → 木\"\n", []string{"\"π → 木\""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// One byte at a time: no line may depend on how the reads fall.
			tasks, err := dataset.Read(iotest.OneByteReader(strings.NewReader(tc.text)), "tasks.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range tasks.Len() {
				task, err := tasks.Task(i)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(task))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadRejects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, want string
	}{
		{"not JSON", "{}\n\nhello\n", `tasks.jsonl:3: column 1: not valid JSON: invalid character 'h' at start of value, got "hello"`},
		{"cut off", "{\"a\":\n", `tasks.jsonl:1: column 6: the line ends inside a JSON value that begins with "{\"a\":"`},
		{"two values", "{} {}\n", `tasks.jsonl:1: column 4: "{}" follows the value; a line holds exactly one JSON value`},
		{"inside", "1\n{\"question\": {\"a\": tru}}", `tasks.jsonl:2: column 23: not valid JSON at /question/a: invalid character '}' in literal true (expecting 'e'), got "}}"`},
		{"repeated key", "{\"é\":1,\"é\":2}\n", `tasks.jsonl:1: column 8: not valid JSON at /é: duplicate object member name, got "\"é\":2}"`},
		{"UTF-16", "\xff\xfe1\x00\n\x00", "tasks.jsonl: the file is in UTF-16, must be in UTF-8"},
		{"invalid UTF-8", "\"a\xff\"\n", `tasks.jsonl:1: column 3: not valid JSON: invalid UTF-8, got "\xff\""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tasks, err := dataset.Read(strings.NewReader(tc.text), "tasks.jsonl")
			if !errors.Is(err, agl.ErrInvalid) {
				t.Fatalf("got tasks %v and error %v, want ErrInvalid", tasks, err)
			}
			if err.Error() != tc.want {
				t.Errorf("message\n got %s\nwant %s", err, tc.want)
			}
		})
	}
}

func TestReadLongLine(t *testing.T) {
	t.Parallel()
	text := "1\n\"" + strings.Repeat("x", dataset.MaxLine) + "\"\n"
	_, err := dataset.Read(strings.NewReader(text), "tasks.jsonl")
	if want := "tasks.jsonl:2: the line is longer than 16777216 bytes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadFault(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	_, err := dataset.Read(io.MultiReader(strings.NewReader("1\n"), iotest.ErrReader(broken)), "tasks.jsonl")
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "tasks.jsonl:2: ") {
		t.Errorf("got %v, want the reader's error with file and line", err)
	}
}

func TestReadEmpty(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n \n", "\xef\xbb\xbf"} {
		_, err := dataset.Read(strings.NewReader(text), "tasks.jsonl")
		if !errors.Is(err, dataset.ErrEmpty) || !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrEmpty and ErrInvalid", text, err)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, []byte("{\"x\":1}\nnope\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dataset.Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":2: ") {
		t.Errorf("got %v, want an error that begins with %s:2:", err, path)
	}
	if _, err := dataset.Load(path + ".gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

// FuzzLines checks that whatever is accepted is one JSON value per non-blank
// line, byte for byte, and reads back the same.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{"{}\n", "1\n\n2\r\n", "\xef\xbb\xbf[]", "{\"a\":\"\\ud800\"}", "nul", "{\"a\":1}x", "\"\xff\""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tasks, err := dataset.Read(bytes.NewReader(data), "f")
		if err != nil {
			if !errors.Is(err, agl.ErrInvalid) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		var again []byte
		for _, task := range tasks {
			if !task.IsValid() {
				t.Fatalf("accepted %q", task)
			}
			if !bytes.Contains(data, task) {
				t.Fatalf("%q is not in the input", task)
			}
			again = append(append(again, task...), '\n')
		}
		second, err := dataset.Read(bytes.NewReader(again), "f")
		if err != nil {
			t.Fatalf("read back: %v", err)
		}
		if diff := cmp.Diff([]jsontext.Value(tasks), []jsontext.Value(second)); diff != "" {
			t.Fatalf("read back (-first +second):\n%s", diff)
		}
	})
}
