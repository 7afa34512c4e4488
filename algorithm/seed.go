package algorithm

import (
	"encoding/binary"
	"hash/fnv"
)

// DeriveSeed returns a seed in [0, 2⁵³), so that it survives every JSON reader,
// that is a function of a run's seed, a purpose and a place (FNV-1a, hashed).
func DeriveSeed(seed uint64, purpose string, place ...int) uint64 {
	h := fnv.New64a()
	var buf [8]byte
	write := func(v uint64) {
		binary.LittleEndian.PutUint64(buf[:], v)
		_, _ = h.Write(buf[:]) // a hash never fails
	}
	write(seed)
	_, _ = h.Write([]byte(purpose))
	for _, p := range place {
		write(uint64(p))
	}
	// FNV's high bits mix poorly for short inputs: finish as splitmix64 does
	// (Steele, Lea, Flood 2014).
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) >> 11
}
