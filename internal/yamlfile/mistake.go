package yamlfile

import (
	"strconv"
	"strings"

	"github.com/agl-go/agl"
)

// Mistake is one thing that is wrong in a file.
type Mistake struct {
	Line    int // counted from 1; 0 is the whole file
	Message string
}

// Error lists the mistakes in a file, in the order of their lines.
type Error struct {
	Name     string // the file's name
	Mistakes []Mistake
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = e.Name
		if m.Line > 0 {
			lines[i] += ":" + strconv.Itoa(m.Line)
		}
		lines[i] += ": " + m.Message
	}
	return strings.Join(lines, "\n")
}

// Is makes the error match agl.ErrInvalid.
func (e *Error) Is(target error) bool { return target == agl.ErrInvalid }
