package sft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// Source supplies the batch of each step.
type Source interface {
	// Batch returns the data of a step ≥ 0, at least one datum. The batch depends on nothing but the step, so that a resumed
	// run sees the same data. The caller does not change it.
	Batch(step int) ([]tinker.Datum, error)
	// Fingerprint identifies the batches.
	Fingerprint() string
}

// Shuffled is a [Source] that goes through a list of demonstrations in batches, in a new order each epoch.
type Shuffled struct {
	data  []tinker.Datum
	size  int
	seed  uint64
	order *algorithm.Shuffle
}

// NewShuffled makes a source of batches of size data each. It keeps the slice. Each datum must be valid for cross_entropy.
func NewShuffled(data []tinker.Datum, size int, seed uint64) (*Shuffled, error) {
	if len(data) == 0 || size < 1 {
		return nil, invalid("%d demonstrations in batches of %d; both must be at least 1", len(data), size)
	}
	for i := range data {
		if err := data[i].Validate(tinker.CrossEntropy, 0); err != nil {
			return nil, invalid("demonstration %d: %w", i, err)
		}
	}
	return &Shuffled{data: data, size: size, seed: seed, order: algorithm.NewShuffle(len(data), seed)}, nil
}

// Batch implements [Source].
func (s *Shuffled) Batch(step int) ([]tinker.Datum, error) {
	batch := make([]tinker.Datum, s.size)
	for i := range batch {
		batch[i] = s.data[s.order.At(step*s.size+i)]
	}
	return batch, nil
}

// Fingerprint implements [Source]: a hash of the demonstrations, their order, the batch size and the seed.
func (s *Shuffled) Fingerprint() string {
	h := sha256.New()
	var buf []byte
	number := func(v uint64) { buf = binary.LittleEndian.AppendUint64(buf, v) }
	number(s.seed)
	number(uint64(s.size))
	for _, d := range s.data {
		number(uint64(len(d.Input)))
		for i, id := range d.Input {
			number(uint64(id)<<32 | uint64(uint32(d.Targets[i])))
		}
		for _, w := range d.Weights {
			number(uint64(math.Float32bits(w)))
		}
		h.Write(buf)
		buf = buf[:0]
	}
	h.Write(buf)
	return hex.EncodeToString(h.Sum(nil)[:8])
}
