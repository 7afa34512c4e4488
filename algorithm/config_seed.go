package algorithm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/agl-go/agl"
)

// DeriveSeed returns a seed that is a function of a run's seed, a purpose and a place (FNV-1a, finished by splitmix64). It
// is in [0, 2⁵³), so that every JSON reader preserves it.
func DeriveSeed(seed uint64, purpose string, place ...int) uint64 {
	h := fnv.New64a()
	var buf [8]byte
	write := func(v uint64) {
		binary.LittleEndian.PutUint64(buf[:], v)
		_, _ = h.Write(buf[:]) // never fails
	}
	write(seed)
	_, _ = h.Write([]byte(purpose))
	for _, p := range place {
		write(uint64(p))
	}
	// FNV mixes its high bits poorly for short inputs, so splitmix64 (Steele, Lea, Flood 2014) mixes them again.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) >> 11
}

// Shuffle is an endless sequence over 0 … N−1. Each run of N elements, an epoch, is a new permutation. The element at
// position k is a function of N, the seed and k alone, so that a checkpoint needs to hold nothing but a position. It is not
// safe for concurrent use.
type Shuffle struct {
	n     int
	seed  uint64
	epoch int
	perm  []int // of epoch; nil before the first use
}

// NewShuffle makes the sequence for n ≥ 1 elements.
func NewShuffle(n int, seed uint64) *Shuffle { return &Shuffle{n: n, seed: seed} }

// At returns the element at position k ≥ 0.
func (s *Shuffle) At(k int) int {
	epoch := k / s.n
	if s.perm == nil || epoch != s.epoch {
		r := rand.New(rand.NewPCG(s.seed, DeriveSeed(s.seed, "shuffle", epoch)))
		s.perm, s.epoch = r.Perm(s.n), epoch
	}
	return s.perm[k%s.n]
}

// Fingerprint identifies a dataset: the number of tasks and a hash of all of them.
func Fingerprint(data agl.Dataset) (string, error) {
	h := sha256.New()
	var length [8]byte
	for i := range data.Len() {
		task, err := data.Task(i)
		if err != nil {
			return "", err
		}
		binary.LittleEndian.PutUint64(length[:], uint64(len(task)))
		h.Write(length[:])
		h.Write(task)
	}
	return fmt.Sprintf("%d tasks %s", data.Len(), hex.EncodeToString(h.Sum(nil)[:8])), nil
}
