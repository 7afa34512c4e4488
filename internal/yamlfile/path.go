package yamlfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl/internal/homedir"
)

// pathSchema returns the schema of the path of a file or a folder.
func pathSchema(name, description string) func(*defs) object {
	return func(d *defs) object {
		return d.ref(name, object{{"description", description}, {"type", []string{"string", "number"}}})
	}
}

// Path declares the path of a file or a folder that need not exist. It is read as an
// absolute path; a relative one starts from Document.Dir.
func Path(to *string) Value {
	schema := pathSchema("path", "The path of a file or a folder. A relative one starts from the folder of this file.")
	return pathOf("the path of a file or a folder", schema, func(_ *reader, _ *yaml.Node, _, absolute string) { *to = absolute })
}

// Command declares a program and its arguments. A ~ at the beginning of the program is the home directory; arguments are not changed.
func Command(to *[]string) Value {
	return NonEmptyList(to, Text).Check(func(s *Scope) {
		if !s.Clean() {
			return
		}
		program, err := homedir.Expand((*to)[0])
		if err != nil {
			s.Failf("", "%v", err)
			return
		}
		(*to)[0] = program
	})
}

// File is [Path] for a file that must exist.
func File(to *string) Value {
	return existing(func(_ *reader, _ *yaml.Node, _, absolute string) { *to = absolute })
}

// Folder is [Path] for a folder that must exist.
func Folder(to *string) Value {
	schema := pathSchema("folder", "The path of a folder that exists. A relative one starts from the folder of this file.")
	return pathOf("the path of a folder", schema, func(r *reader, n *yaml.Node, at, absolute string) {
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

// TextFile is a file that is read for its text.
type TextFile struct {
	Path string // absolute
	Text string
}

// maxText is the most bytes that a TextFile may have.
const maxText = 1 << 20

// Contents declares the path of a file that is read for its text: UTF-8, at most 1 MiB.
func Contents(to *TextFile) Value {
	return existing(func(r *reader, n *yaml.Node, at, absolute string) {
		data, err := readAtMost(absolute, maxText)
		switch {
		case errors.Is(err, fs.ErrNotExist) && r.elsewhere:
			*to = TextFile{Path: absolute}
		case err != nil:
			r.failf(n, "%s: %v", at, err)
		case len(data) > maxText:
			r.failf(n, "%s: %s is longer than 1 MiB, must be a text", at, absolute)
		case !utf8.Valid(data):
			r.failf(n, "%s: %s is not UTF-8, must be a text", at, absolute)
		default:
			*to = TextFile{Path: absolute, Text: strings.TrimPrefix(string(data), "\ufeff")}
		}
	})
}

func pathOf(must string, schema func(*defs) object, found func(r *reader, n *yaml.Node, at, absolute string)) Value {
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

// existing declares the path of a file that must exist.
func existing(found func(r *reader, n *yaml.Node, at, absolute string)) Value {
	schema := pathSchema("file", "The path of a file that exists. A relative one starts from the folder of this file.")
	return pathOf("the path of a file", schema, func(r *reader, n *yaml.Node, at, absolute string) {
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

// readAtMost reads a file. If the file is longer than the limit, the result is longer, too, by one byte.
func readAtMost(path string, limit int64) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}
