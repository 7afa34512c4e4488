package policy

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Config describes the model that a [Service] trains and where it keeps checkpoints. Only Vocab is required.
type Config struct {
	// Name is the base model's name; empty means "agl-policy".
	Name string
	// Vocab is the number of token ids, at least 2. Required.
	Vocab int
	// Context is the longest sequence in tokens; zero means 48.
	Context int
	// Layers is the number of transformer blocks; zero means 2.
	Layers int
	// Dim is the width of the residual stream, a multiple of 16·Heads; zero means 64.
	Dim int
	// Heads is the number of attention heads; zero means 4.
	Heads int
	// FF is the width of the feed-forward layer, a multiple of 16; zero means 256.
	FF int
	// Workers is the number of goroutines of a training call; zero means GOMAXPROCS. More than 4 have no effect. Results
	// do not depend on it.
	Workers int
	// Dir is the directory of checkpoints. It is made if it is missing. If Dir is empty, checkpoints stay in memory.
	Dir string
	// SaveSnapshots keeps sampler snapshots in Dir too, for later processes.
	SaveSnapshots bool
	// Base is a file of initial weights for every model, made by [Create]. If it is empty, the initial weights of a model
	// are random by its seed, and the base model has seed 0.
	Base string
	// Instance, [A-Za-z0-9_-]+, becomes a part of model ids and distinguishes those of this process. It may be empty.
	Instance string

	// portable turns the assembly kernels off. Tests compare the two.
	portable bool
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "agl-policy")
	c.Context = cmp.Or(c.Context, 48)
	c.Layers = cmp.Or(c.Layers, 2)
	c.Dim = cmp.Or(c.Dim, 64)
	c.Heads = cmp.Or(c.Heads, 4)
	c.FF = cmp.Or(c.FF, 256)
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	return c
}

// Checked returns c with defaults in place of zero values. A field out of range is agl.ErrInvalid.
func (c Config) Checked() (Config, error) {
	c = c.withDefaults()
	return c, c.validate()
}

func (c Config) validate() error {
	if err := tinker.ValidateName(c.Name); err != nil {
		return invalid("policy: %w", err)
	}
	if c.Instance != "" {
		if err := tinker.ValidateName(c.Instance); err != nil {
			return invalid("policy: Instance: %w", err)
		}
	}
	if c.SaveSnapshots && c.Dir == "" {
		return invalid("policy: SaveSnapshots needs a Dir")
	}
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"Vocab", c.Vocab, 2, 1 << 16},
		{"Context", c.Context, 2, 1 << 12},
		{"Layers", c.Layers, 1, 64},
		{"Dim", c.Dim, 16, 1 << 12},
		{"Heads", c.Heads, 1, 64},
		{"FF", c.FF, 16, 1 << 14},
		{"Workers", c.Workers, 1, 1 << 10},
	} {
		if f.value < f.low || f.value > f.high {
			return invalid("policy: %s is %d; allowed is %d to %d", f.name, f.value, f.low, f.high)
		}
	}
	if c.Dim%(panelWidth*c.Heads) != 0 {
		return invalid("policy: Dim is %d; it must be a multiple of %d·Heads = %d", c.Dim, panelWidth, panelWidth*c.Heads)
	}
	if c.FF%panelWidth != 0 {
		return invalid("policy: FF is %d; it must be a multiple of %d", c.FF, panelWidth)
	}
	return nil
}

func (c Config) kernel() kernel { return kernel{simd: haveSIMD() && !c.portable} }

func (c Config) spec() tinker.ModelSpec {
	return tinker.ModelSpec{Name: c.Name, Vocab: c.Vocab, Context: c.Context}
}

// shape is the part of a Config that determines the tensors. Checkpoints contain it.
type shape struct {
	Layers  int `json:"layers"`
	Dim     int `json:"dim"`
	Heads   int `json:"heads"`
	FF      int `json:"ff"`
	Vocab   int `json:"vocab"`
	Context int `json:"context"`
}

func (c Config) shape() shape {
	return shape{Layers: c.Layers, Dim: c.Dim, Heads: c.Heads, FF: c.FF, Vocab: c.Vocab, Context: c.Context}
}

func (s shape) String() string {
	return fmt.Sprintf("layers=%d dim=%d heads=%d ff=%d vocab=%d context=%d", s.Layers, s.Dim, s.Heads, s.FF, s.Vocab, s.Context)
}

func (s shape) headDim() int { return s.Dim / s.Heads }

// logitCols is the vocabulary rounded up to whole panels. The extra columns are unused.
func (s shape) logitCols() int { return ceil16(s.Vocab) }

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}

// damaged returns an agl.ErrInvalid that is tinker.ErrDamaged too.
func damaged(format string, args ...any) error {
	return &agl.Error{Code: agl.CodeInvalid, Message: fmt.Sprintf(format, args...), Err: tinker.ErrDamaged}
}
