package tinker

import "strings"

// WeightsKind is the kind of saved weights, the middle part of their path.
type WeightsKind string

// The kinds of saved weights.
const (
	// KindCheckpoint is a full training state (SaveWeights).
	KindCheckpoint WeightsKind = "weights"
	// KindSampler is a snapshot for sampling (SaveWeightsForSampler).
	KindSampler WeightsKind = "sampler_weights"
)

const scheme = "tinker://"

// Path is a parsed path of saved weights: tinker://<model>/<kind>/<name>.
type Path struct {
	Model string
	Kind  WeightsKind
	Name  string
}

// String returns the path in its wire form.
func (p Path) String() string {
	return scheme + p.Model + "/" + string(p.Kind) + "/" + p.Name
}

// ParsePath parses a path. The short form tinker://<model>/<name>, which some servers return for sampler snapshots, is of
// [KindSampler]. Errors have code agl.CodeInvalid.
func ParsePath(s string) (Path, error) {
	rest, ok := strings.CutPrefix(s, scheme)
	if !ok {
		return Path{}, invalid("path: %q does not begin with %s", s, scheme)
	}
	parts := strings.Split(rest, "/")
	var p Path
	switch len(parts) {
	case 2:
		p = Path{Model: parts[0], Kind: KindSampler, Name: parts[1]}
	case 3:
		p = Path{Model: parts[0], Kind: WeightsKind(parts[1]), Name: parts[2]}
	default:
		return Path{}, invalid("path: %q is not %s<model>/<kind>/<name>", s, scheme)
	}
	if p.Kind != KindCheckpoint && p.Kind != KindSampler {
		return Path{}, invalid("path: %q has kind %q; allowed are %q, %q", s, p.Kind, KindCheckpoint, KindSampler)
	}
	if !validName(p.Model) || !validName(p.Name) {
		return Path{}, invalid("path: %q has a part that is not [A-Za-z0-9_-]+", s)
	}
	return p, nil
}

// maxName is the most characters of a name. Engines keep what has it in a file with a name that is somewhat longer.
const maxName = 200

// ValidateName reports a checkpoint or snapshot name that is not [A-Za-z0-9_-]+ or too long, with code agl.CodeInvalid.
func ValidateName(name string) error {
	if !validName(name) {
		return invalid("name: %.300q is not of the form [A-Za-z0-9_-]+", name)
	}
	if len(name) > maxName {
		return invalid("name: %.20q… has %d characters, must have at most %d", name, len(name), maxName)
	}
	return nil
}

func validName(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}
