package flags

import "github.com/agl-go/agl/access"

// Rules has the flags of a key's calls of models.
type Rules struct {
	AllowModel     []string `placeholder:"NAME" help:"A model that may be called; repeat it for several. Default: all."`
	CallsPerMinute Count    `placeholder:"N" help:"Most calls of models that may begin within any 60 seconds, at each proxy. Default: no limit."`
}

// Rules are the rules of the flags.
func (f *Rules) Rules() access.Rules {
	return access.Rules{Models: f.AllowModel, CallsPerMinute: int64(f.CallsPerMinute)}
}
