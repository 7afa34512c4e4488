package flags

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl/access"
)

// Rules has the flags of a key's calls of models.
type Rules struct {
	AllowModel     []ModelName `sep:"none" placeholder:"NAME" help:"A model that may be called; repeat it for several. Default: all."`
	CallsPerMinute Count       `placeholder:"N" help:"Most calls of models that may begin within any 60 seconds, at each proxy. Default: no limit."`
}

// Rules are the rules of the flags.
func (f *Rules) Rules() access.Rules {
	r := access.Rules{CallsPerMinute: int64(f.CallsPerMinute)}
	for _, name := range f.AllowModel {
		r.Models = append(r.Models, string(name))
	}
	return r
}

// ModelName is the name of one model.
type ModelName string

// UnmarshalText reads a name. An empty one, such as from a variable that is not set, must not
// become a list that allows all models.
func (n *ModelName) UnmarshalText(text []byte) error {
	if len(text) == 0 || !utf8.Valid(text) || strings.Contains(string(text), ",") {
		return fmt.Errorf("got %q, must be the name of a model; repeat the flag for several", text)
	}
	*n = ModelName(text)
	return nil
}
