package yamlfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// pathSchema is that of files and folders.
func pathSchema(name, description string) func(*defs) object {
	return func(d *defs) object {
		return d.ref(name, object{{"description", description}, {"type", []string{"string", "number"}}})
	}
}

// Path declares the path of a file or a folder that need not exist. It is made
// absolute; a relative one starts from Document.Dir.
func Path(to *string) Value {
	schema := pathSchema("path", "The path of a file or a folder. A relative one starts from the folder of this file.")
	return path("the path of a file or a folder", schema, func(_ *reader, _ *yaml.Node, _, absolute string) { *to = absolute })
}

// File declares the path of a file that exists, made absolute.
func File(to *string) Value {
	return existing(func(_ *reader, _ *yaml.Node, _, absolute string) { *to = absolute })
}

// Folder declares the path of a folder that exists, made absolute.
func Folder(to *string) Value {
	schema := pathSchema("folder", "The path of a folder that exists. A relative one starts from the folder of this file.")
	return path("the path of a folder", schema, func(r *reader, n *yaml.Node, at, absolute string) {
		info, err := os.Stat(absolute)
		switch {
		case errors.Is(err, fs.ErrNotExist) && r.elsewhere:
			*to = absolute
		case errors.Is(err, fs.ErrNotExist), err == nil && !info.IsDir():
			r.failf(n, "%s: there is no folder %s", at, absolute)
		case err != nil:
			r.failf(n, "%s: %v", at, err)
		default:
			*to = absolute
		}
	})
}

// TextFile is a file that stands for the text in it.
type TextFile struct {
	Path string // absolute
	Text string
}

// longestText bounds such a file.
const longestText = 1 << 20

// Contents declares the path of a file that stands for the text in it, at most
// 1 MiB of UTF-8.
func Contents(to *TextFile) Value {
	return existing(func(r *reader, n *yaml.Node, at, absolute string) {
		data, err := readAtMost(absolute, longestText)
		switch {
		case errors.Is(err, fs.ErrNotExist) && r.elsewhere:
			*to = TextFile{Path: absolute}
		case err != nil:
			r.failf(n, "%s: %v", at, err)
		case len(data) > longestText:
			r.failf(n, "%s: %s is longer than 1 MiB, must be a text", at, absolute)
		case !utf8.Valid(data):
			r.failf(n, "%s: %s is not UTF-8, must be a text", at, absolute)
		default:
			*to = TextFile{Path: absolute, Text: string(data)}
		}
	})
}

func path(must string, schema func(*defs) object, found func(r *reader, n *yaml.Node, at, absolute string)) Value {
	return scalar(must, schema, func(r *reader, n *yaml.Node, at string) {
		if n.Tag == "!!bool" || n.Tag == nullTag || n.Value == "" {
			r.wrong(n, at, must)
			return
		}
		absolute, err := r.absolute(n.Value)
		if err != nil {
			r.failf(n, "%s: %v", at, err)
			return
		}
		found(r, n, at, absolute)
	})
}

// existing declares the path of a file that is there.
func existing(found func(r *reader, n *yaml.Node, at, absolute string)) Value {
	schema := pathSchema("file", "The path of a file that exists. A relative one starts from the folder of this file.")
	return path("the path of a file", schema, func(r *reader, n *yaml.Node, at, absolute string) {
		info, err := os.Stat(absolute)
		switch {
		case errors.Is(err, fs.ErrNotExist) && r.elsewhere:
			found(r, n, at, absolute)
		case errors.Is(err, fs.ErrNotExist):
			r.failf(n, "%s: there is no file %s", at, absolute)
		case err != nil:
			r.failf(n, "%s: %v", at, err)
		case !info.Mode().IsRegular():
			r.failf(n, "%s: %s is not a regular file", at, absolute)
		default:
			found(r, n, at, absolute)
		}
	})
}

// readAtMost reads a file, and one byte beyond the limit if it is longer.
func readAtMost(path string, limit int64) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}
