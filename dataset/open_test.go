package dataset_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/internal/rawjson"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string, options dataset.Options) ([]string, error) {
	t.Helper()
	r, err := dataset.Open(path, options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	tasks, err := r.Tasks()
	var got []string
	for _, task := range tasks {
		if !task.IsValid() {
			t.Errorf("%s is not valid JSON", task)
		}
		got = append(got, string(task))
	}
	return got, err
}

func TestOpen(t *testing.T) {
	t.Parallel()
	types := map[string]dataset.Type{"n": dataset.TypeNumber, "b": dataset.TypeBool, "j": dataset.TypeJSON, "s": dataset.TypeString}
	for _, tc := range []struct {
		name, file, text string
		options          dataset.Options
		want             []string
	}{
		{"csv", "t.csv", "q,a\nx,1\n\"y,\"\"z\",\n", dataset.Options{}, []string{`{"q":"x","a":"1"}`, `{"q":"y,\"z","a":""}`}},
		{"csv of windows", "T.CSV", "\xef\xbb\xbfq\r\n\"two\r\nlines\"\r\n", dataset.Options{}, []string{`{"q":"two\nlines"}`}},
		{"csv types", "t.csv", "n,b,j,s,x\n1.0,TRUE,\"{\"\"k\"\": [1]}\",7,8\n,,,,\n-12345678901234567890, false ,null,a,b\n", dataset.Options{Types: types}, []string{
			`{"n":1.0,"b":true,"j":{"k": [1]},"s":"7","x":"8"}`, `{"n":null,"b":null,"j":null,"s":"","x":""}`,
			`{"n":-12345678901234567890,"b":false,"j":null,"s":"a","x":"b"}`,
		}},
		{"csv columns", "t.csv", "a,b,c\n1,2,3\n", dataset.Options{
			Columns: []dataset.Column{{Name: "c", As: "first"}, {Name: "a"}, {Name: "c"}}, Types: map[string]dataset.Type{"c": dataset.TypeNumber},
		}, []string{`{"first":3,"a":"1","c":3}`}},
		{"jsonl", "t.jsonl", "{ \"b\": 1.0 }\n7\n", dataset.Options{}, []string{`{ "b": 1.0 }`, `7`}},
		{"jsonl columns", "t.ndjson", "{\"b\": 1.0,\"a\":{ }}\n", dataset.Options{Columns: []dataset.Column{{Name: "a", As: "x"}, {Name: "b"}}},
			[]string{`{"x":{ },"b":1.0}`}},
		{"format given", "t.txt", "q\n1\n", dataset.Options{Format: dataset.FormatCSV}, []string{`{"q":"1"}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := read(t, write(t, tc.file, tc.text), tc.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOpenRejects(t *testing.T) {
	t.Parallel()
	number := dataset.Options{Types: map[string]dataset.Type{"q": dataset.TypeNumber}}
	for _, tc := range []struct {
		name, file, text string
		options          dataset.Options
		want             string // after the path
	}{
		{"semicolons", "t.csv", "\ufeffq;a\n1;2\n", dataset.Options{}, `:1: the only column is named "q;a"; columns are separated by commas`},
		{"ragged", "t.csv", "q,a\n1,2\n\n3\n", dataset.Options{}, ":4: the line does not have as many columns as the first one"},
		{"quote", "t.csv", "q\n1\na\"b\n", dataset.Options{}, `:3: column 2: not valid CSV: bare " in non-quoted-field`},
		{"open quote", "t.csv", "q\n\"1\n", dataset.Options{}, `:2: column 4: not valid CSV: extraneous or missing " in quoted-field`},
		{"no name", "t.csv", "q,\n1,2\n", dataset.Options{}, ":1: column 2 has no name; the first line names the columns"},
		{"same name", "t.csv", "q,a,q\n", dataset.Options{}, `:1: column 3 is named "q", as column 1 is`},
		{"number", "t.csv", "a,q\n\"x\ny\",1\n\"x\ny\",0x1\n", number, `:5: column "q": got "0x1", must be a number`},
		{"not a number", "t.csv", "q\nNaN\n", number, `:2: column "q": got "NaN", must be a number`},
		{"two numbers", "t.csv", "q\n1 2\n", number, `:2: column "q": got "1 2", must be a number`},
		{"bool", "t.csv", "q\nyes\n", dataset.Options{Types: map[string]dataset.Type{"q": dataset.TypeBool}}, `:2: column "q": got "yes", must be true or false`},
		{"json", "t.csv", "q\n{}{}\n", dataset.Options{Types: map[string]dataset.Type{"q": dataset.TypeJSON}}, `:2: column "q": got "{}{}", must be one JSON value`},
		{"text", "t.csv", "q\n\xff\n", dataset.Options{}, `:2: column "q": got "\xff", which is not UTF-8`},
		{"column", "t.csv", "q\n1\n", dataset.Options{Columns: []dataset.Column{{Name: "z"}}}, `: there is no column "z", only ["q"]`},
		{"typed column", "t.csv", "a\n1\n", number, `: there is no column "q", only ["a"]`},
		{"header alone", "t.csv", "q\n", dataset.Options{}, ": the dataset is empty: it has no task"},
		{"nothing", "t.csv", "", dataset.Options{}, ": the dataset is empty: it has no task"},
		{"member", "t.jsonl", "{\"a\":1}\n{}\n", dataset.Options{Columns: []dataset.Column{{Name: "a"}}}, `:2: the object has no member "a"`},
		{"no object", "t.jsonl", "\n1\n", dataset.Options{Columns: []dataset.Column{{Name: "a"}}}, `:2: got "1", must be an object, from which the columns are picked`},
		{"parquet", "t.parquet", "PAR1 is how it begins", dataset.Options{}, ": not a valid Parquet file: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, tc.file, tc.text)
			got, err := read(t, path, tc.options)
			if !errors.Is(err, agl.ErrInvalid) || !strings.HasPrefix(err.Error(), path+tc.want) {
				t.Errorf("got %v and error %v, want one that begins with %s%s", got, err, path, tc.want)
			}
		})
	}
}

// A file is read more than once, which a folder or a pipe cannot be.
func TestOpenRegular(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.jsonl")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := dataset.Open(path, dataset.Options{}); !errors.Is(err, agl.ErrInvalid) || err.Error() != path+": got a folder, must be a regular file" {
		t.Errorf("a folder: %v", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, path string
		options    dataset.Options
		want       string
	}{
		{"extension", "t.xls", dataset.Options{}, "dataset: t.xls: the name does not say the format"},
		{"format", "t.csv", dataset.Options{Format: "tsv"}, `dataset: Format: got "tsv"`},
		{"name", "t.csv", dataset.Options{Columns: []dataset.Column{{As: "a"}}}, "dataset: Columns[0].Name: must not be empty"},
		{"twice", "t.csv", dataset.Options{Columns: []dataset.Column{{Name: "a"}, {Name: "b", As: "a"}}}, `dataset: Columns[1].As: got "a" a second time`},
		{"type", "t.csv", dataset.Options{Types: map[string]dataset.Type{"a": "int"}}, `dataset: Types["a"]: got "int", must be string, number, bool or json`},
		{"types elsewhere", "t.jsonl", dataset.Options{Types: map[string]dataset.Type{"a": dataset.TypeBool}}, "dataset: Types: must be empty for a jsonl file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := dataset.Open(tc.path, tc.options)
			if !errors.Is(err, agl.ErrInvalid) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := dataset.Open(filepath.Join(t.TempDir(), "gone.csv"), dataset.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

type inner struct {
	Role  string  `parquet:"role"`
	Score *int64  `parquet:"score,optional"`
	Deep  []int32 `parquet:"deep,list"`
}

type record struct {
	ID       int64             `parquet:"id"`
	Big      uint64            `parquet:"big"`
	Text     string            `parquet:"text"`
	Maybe    *string           `parquet:"maybe,optional"`
	Yes      bool              `parquet:"yes"`
	Ratio    float32           `parquet:"ratio"`
	Large    float64           `parquet:"large"`
	At       time.Time         `parquet:"at,timestamp(microsecond)"`
	Day      int32             `parquet:"day,date"`
	Price    int64             `parquet:"price,decimal(2:18)"`
	Raw      []byte            `parquet:"raw"`
	JSON     string            `parquet:"json,json"`
	Repeated []string          `parquet:"repeated"`
	List     []inner           `parquet:"list,list"`
	One      *inner            `parquet:"one,optional"`
	Nested   [][]int64         `parquet:"nested,list"`
	Map      map[string]int32  `parquet:"map"`
	Maps     map[int32][]int32 `parquet:"maps"`
}

func writeParquet[T any](t *testing.T, rows []T, options ...parquet.WriterOption) string {
	t.Helper()
	var file bytes.Buffer
	w := parquet.NewGenericWriter[T](&file, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, "t.parquet", file.String())
}

func TestParquet(t *testing.T) {
	t.Parallel()
	full := record{
		ID: 1<<63 - 1, Big: 1<<64 - 1, Text: "π\n", Maybe: new("x"), Yes: true, Ratio: 0.1, Large: 1234567,
		At: time.Date(1969, 12, 31, 23, 59, 59, 250_000_000, time.UTC), Day: 19000, Price: -105, Raw: []byte{0, 255}, JSON: `{"k": 1.0}`,
		Repeated: []string{"a", "b"},
		List:     []inner{{Role: "u", Score: new(int64(1)), Deep: []int32{1, 2}}, {Role: "a"}, {Role: "b", Deep: []int32{3}}},
		One:      &inner{Role: "o"}, Nested: [][]int64{{1, 2}, {3}},
		Map: map[string]int32{"k": 1}, Maps: map[int32][]int32{7: {8, 9}},
	}
	path := writeParquet(t, []record{full, {JSON: "null"}, full}, parquet.MaxRowsPerRowGroup(2), parquet.Compression(&parquet.Zstd))
	got, err := read(t, path, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	filled := `{"id":9223372036854775807,"big":18446744073709551615,"text":"π\n","maybe":"x","yes":true,"ratio":0.1,"large":1234567.0,` +
		`"at":"1969-12-31T23:59:59.25Z","day":"2022-01-08","price":-1.05,"raw":"AP8=","json":{"k": 1.0},"repeated":["a","b"],` +
		`"list":[{"role":"u","score":1,"deep":[1,2]},{"role":"a","score":null,"deep":[]},{"role":"b","score":null,"deep":[3]}],` +
		`"one":{"role":"o","score":null,"deep":[]},"nested":[[1,2],[3]],"map":{"k":1},"maps":{"7":[8,9]}}`
	if len(got) != 3 {
		t.Fatalf("got %d rows, want 3", len(got))
	}
	for _, row := range []int{0, 2} {
		if diff := cmp.Diff(filled, got[row]); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", row, diff)
		}
	}
	for _, part := range []string{`"id":0,`, `"maybe":null`, `"repeated":[]`, `"list":[]`, `"one":null`, `"nested":[]`, `"map":{}`, `"price":0.00`, `"ratio":0.0,`} {
		if !strings.Contains(got[1], part) {
			t.Errorf("%s is not in the empty row %s", part, got[1])
		}
	}
	got, err = read(t, path, dataset.Options{Columns: []dataset.Column{{Name: "one", As: "first"}, {Name: "id"}}})
	if err != nil || got[1] != `{"first":null,"id":0}` {
		t.Errorf("columns: got %v, %v", got, err)
	}
	_, err = read(t, path, dataset.Options{Columns: []dataset.Column{{Name: "none"}}})
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), `there is no column "none", only ["id" "big"`) {
		t.Errorf("got %v", err)
	}
}

// half is the type of half-precision numbers.
type half struct{ parquet.Type }

func (half) LogicalType() *format.LogicalType {
	return &format.LogicalType{Value: new(format.Float16Type)}
}

func TestParquetHalfPrecision(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	column := parquet.Leaf(half{parquet.FixedLenByteArrayType(2)})
	w := parquet.NewWriter(&file, parquet.NewSchema("t", parquet.Group{"g": parquet.Group{"raw": parquet.Leaf(parquet.FixedLenByteArrayType(2)), "h": column}}))
	for _, bits := range []string{"\x00\x3e", "\x00\xc0", "\x01\x00", "\xff\x7b", "\x00\x7c", "\x00\x7e"} {
		value := parquet.FixedLenByteArrayValue([]byte(bits))
		if _, err := w.WriteRows([]parquet.Row{{value.Level(0, 0, 0), value.Level(0, 0, 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := read(t, write(t, "t.parquet", file.String()), dataset.Options{})
	want := []string{
		`{"g":{"h":1.5,"raw":"AD4="}}`, `{"g":{"h":-2.0,"raw":"AMA="}}`, `{"g":{"h":5.9604645e-08,"raw":"AQA="}}`, `{"g":{"h":65504.0,"raw":"/3s="}}`,
		`{"g":{"h":"Infinity","raw":"AHw="}}`, `{"g":{"h":"NaN","raw":"AH4="}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A table without rows has a row group, and for each column a dictionary page without a data page, if pyarrow wrote it.
func TestParquetEmpty(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "empty.parquet")
	const file = "PAR1\x15\x04\x15\x00\x15\x00L\x15\x00\x15\x00\x12\x00\x00\x15\x04\x19,5\x00\x18\x06schema\x15\x02\x00\x15\x0c%\x02\x18\x01q%\x00L\x1c\x00\x00\x00\x16\x00\x19\x1c\x19\x1c&\x00\x1c\x15\x0c" +
		"\x19%\x00\x06\x19\x18\x01q\x15\x00\x16\x00\x16\x1c\x16\x1c&\x00&\x08)\x1c\x15\x04\x15\x00\x15\x02\x00\x00\x00\x16\x1c\x16\x00&\x08\x16\x1c\x00( parquet-cpp-arrow version 26.0.1\x19\x1c\x1c\x00\x00\x00z\x00\x00\x00PAR1"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, path, dataset.Options{}); err == nil || !strings.HasSuffix(err.Error(), "the dataset is empty: it has no task") {
		t.Errorf("got %v", err)
	}
}

// TestParquetMany reads more rows than are decoded at once, again from the
// start, and stops when its reader does.
func TestParquetMany(t *testing.T) {
	t.Parallel()
	type row struct {
		N  int64   `parquet:"n"`
		Of []int64 `parquet:"of,list"`
	}
	rows := make([]row, 1000)
	for i := range rows {
		rows[i] = row{N: int64(i), Of: make([]int64, i%5)}
	}
	r, err := dataset.Open(writeParquet(t, rows, parquet.MaxRowsPerRowGroup(300)), dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, most := range []int{7, len(rows)} {
		n := 0
		for value, err := range r.Records() {
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				N  int64          `json:"n"`
				Of jsontext.Value `json:"of"`
			}
			if err := rawjson.Unmarshal(value, &got); err != nil {
				t.Fatal(err)
			}
			if zeros := strings.Count(string(got.Of), "0"); got.N != int64(n) || zeros != n%5 {
				t.Fatalf("row %d is %s", n, value)
			}
			if n++; n == most {
				break
			}
		}
		if n != most {
			t.Errorf("got %d rows, want %d", n, most)
		}
	}
}

// TestParquetBroken damages a file at every byte of its end and some of its
// middle: whatever becomes of it, it is an error or rows, and no panic.
func TestParquetBroken(t *testing.T) {
	t.Parallel()
	path := writeParquet(t, []inner{{Role: "a", Deep: []int32{1, 2}}, {Role: "b"}})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x55
		r, err := dataset.Open(write(t, "bad.parquet", string(bad)), dataset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if tasks, err := r.Tasks(); err != nil && !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("byte %d: got %d tasks and an untyped error %v", i, len(tasks), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzCSV checks that whatever is accepted is one valid object per row with the
// same members.
func FuzzCSV(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "a\n\"x\ny\"\n", "\xef\xbb\xbfa\r\n1\r\n", "a,a\n", "a\n\"", "a,b\n1\n", ""} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := os.CreateTemp(dir, "*.csv")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(file.Name())
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := dataset.Open(file.Name(), dataset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		tasks, err := r.Tasks()
		if err != nil {
			if !errors.Is(err, agl.ErrInvalid) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, task := range tasks {
			if task.Kind() != '{' || !task.IsValid() {
				t.Fatalf("accepted %q", task)
			}
		}
	})
}
