package algorithm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// pendingFile holds the path of weights that were saved for a checkpoint.
const pendingFile = "weights.pending"

// Pend notes weights that were just saved for the next [Checkpoints.Save]. When
// the process ends before that, the next [Checkpoints.Restore] deletes them, so
// that none are left that nobody knows.
func (c *Checkpoints) Pend(weights string) error {
	if err := WriteFileAtomic(filepath.Join(c.cfg.Dir, pendingFile), []byte(weights+"\n")); err != nil {
		return fmt.Errorf("note saved weights %s: %w", weights, err)
	}
	return nil
}

// settled forgets the note, once a checkpoint names the weights.
func (c *Checkpoints) settled() error {
	if err := os.Remove(filepath.Join(c.cfg.Dir, pendingFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// dropPending deletes the weights that a process noted and made no checkpoint of.
func (c *Checkpoints) dropPending(ctx context.Context) error {
	data, err := os.ReadFile(filepath.Join(c.cfg.Dir, pendingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	weights := strings.TrimSpace(string(data))
	paths, err := c.list()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if cp, err := readCheckpoint(path); err == nil && cp.Weights == weights {
			return c.settled() // the process ended after the checkpoint
		}
	}
	if err := c.deleteWeights(ctx, weights); err != nil {
		return err
	}
	return c.settled()
}

// deleteWeights is no error when the engine has none such, or keeps all.
func (c *Checkpoints) deleteWeights(ctx context.Context, weights string) error {
	err := c.cfg.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: weights})
	if err != nil && !errors.Is(err, agl.ErrNotFound) && !errors.Is(err, agl.ErrUnimplemented) {
		return fmt.Errorf("delete weights %s: %w", weights, err)
	}
	return nil
}
