package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agl-go/agl"
)

// Create writes the fresh weights of a seed into a new file, durably, for Config.Base. Its directory is made if need
// be. A Config out of range is agl.CodeInvalid; a file that exists, agl.CodeConflict. It returns the number of
// parameters.
func Create(cfg Config, seed uint64, file string) (parameters int, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return 0, err
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return 0, fmt.Errorf("policy: create a base model: %w", err)
		}
		return 0, agl.Errorf(agl.CodeConflict, "%s exists already", file)
	}
	l := newLayout(cfg.shape())
	data, err := encodeWeights(l.shape, l.initialize(seed))
	if err != nil {
		return 0, err
	}
	err = MakeDirectory(filepath.Dir(file))
	if err == nil {
		err = writeDurably(file, data)
	}
	if err != nil {
		return 0, fmt.Errorf("policy: create a base model: %w", err)
	}
	return l.size, nil
}

// readBase reads a base model. One that is not of shape want is agl.CodeInvalid, and a missing file
// agl.CodeNotFound.
func readBase(file string, want shape) ([]float32, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, agl.Errorf(agl.CodeNotFound, "Base: there is no file %s", file)
	}
	if err != nil {
		return nil, fmt.Errorf("policy: read the base model: %w", err)
	}
	c, err := decodeCheckpoint(file, data, want)
	return c.flat, err
}
