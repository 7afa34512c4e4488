package policy

import (
	"fmt"
	"runtime"

	"github.com/agl-go/agl/tinker"
)

// Config describes the model that a [Service] trains and where it keeps checkpoints. The zero value of every
// field but Vocab is usable.
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
	// Workers is the number of goroutines that a training call uses (at most 4 find work); zero means
	// GOMAXPROCS. Results do not depend on it.
	Workers int
	// Dir is the directory of checkpoints, made if need be; empty keeps them in memory.
	Dir string
	// SaveSnapshots keeps sampler snapshots in Dir too, so that they outlive the process.
	SaveSnapshots bool
	// Base is a file of weights, by [Create], from which every model starts; with an empty one a model starts
	// from weights that are drawn by its seed, and the base model is that of seed 0.
	Base string
	// Instance is a part of the ids of models, [A-Za-z0-9_-]+, that tells those of this process from those of
	// another; empty leaves it out.
	Instance string

	// portable turns the assembly kernels off, for tests of their equality with the fallback.
	portable bool
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "agl-policy"
	}
	for _, f := range []struct {
		value *int
		def   int
	}{
		{&c.Context, 48}, {&c.Layers, 2}, {&c.Dim, 64}, {&c.Heads, 4}, {&c.FF, 256},
		{&c.Workers, runtime.GOMAXPROCS(0)},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	return c
}

// Checked returns c with its documented zero values replaced. What is out of range is agl.CodeInvalid.
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

func (c Config) spec() tinker.ModelSpec {
	return tinker.ModelSpec{Name: c.Name, Vocab: c.Vocab, Context: c.Context}
}

// shape is the part of a Config that decides the tensors. Checkpoints carry it.
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

// logitCols is the vocabulary rounded up to whole panels; the columns beyond it are never used.
func (s shape) logitCols() int { return ceil16(s.Vocab) }
