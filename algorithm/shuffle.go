package algorithm

import "math/rand/v2"

// Shuffle is an endless sequence over 0 … N−1 in which each run of N, an epoch,
// is a new permutation. Position k is a function of N, the seed and k alone, so
// a position is all that a checkpoint needs to hold. It is not safe for
// concurrent use.
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
