package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/archive"
	"github.com/agl-go/agl/store/driver"
)

// contended is a driver whose commits conflict at random, but never so often that the
// import gives up.
type contended struct {
	driver.Driver

	random *rand.Rand
	inARow int
}

func (c *contended) Begin(ctx context.Context) (driver.Tx, error) {
	tx, err := c.Driver.Begin(ctx)
	return contendedTx{tx, c}, err
}

type contendedTx struct {
	driver.Tx

	driver *contended
}

func (t contendedTx) Apply(ctx context.Context, c *driver.Changes) error {
	if t.driver.inARow < 4 && t.driver.random.IntN(4) == 0 {
		t.driver.inARow++
		return fmt.Errorf("deadlock: %w", driver.ErrRetry)
	}
	t.driver.inARow = 0
	return t.Tx.Apply(ctx, c)
}

// failing is a driver with one commit that fails, before or after it took effect.
type failing struct {
	driver.Driver

	in     int
	behind bool
}

func (f *failing) Begin(ctx context.Context) (driver.Tx, error) {
	b, err := f.Driver.Begin(ctx)
	return failingTx{b, f}, err
}

type failingTx struct {
	driver.Tx

	driver *failing
}

func (b failingTx) Apply(ctx context.Context, c *driver.Changes) error {
	b.driver.in--
	switch {
	case b.driver.in != 0:
		return b.Tx.Apply(ctx, c)
	case b.driver.behind:
		return errors.Join(b.Tx.Apply(ctx, c), errors.New("interrupted"))
	default:
		return errors.New("interrupted")
	}
}

// killed copies the files of a database as a kill would leave them.
func killed(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "agl.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestImportIntoTooLittleRoom(t *testing.T) {
	t.Parallel()
	file := export(t, populate(t, 60))
	small := newMemory(t, 1000)
	if _, err := archive.Import(t.Context(), small, bytes.NewReader(file), nil); !errors.Is(err, agl.ErrExhausted) {
		t.Errorf("error %v, want exhausted", err)
	}
}

func TestImportUnderContention(t *testing.T) {
	t.Parallel()
	file := export(t, populate(t, 300))
	for seed := range uint64(5) {
		d := &contended{Driver: newMemory(t, 0), random: rand.New(rand.NewPCG(seed, 0))}
		if _, err := archive.Import(t.Context(), d, bytes.NewReader(file), nil); err != nil {
			t.Fatal(err)
		}
		wantCopy(t, d.Driver, file)
	}
}
