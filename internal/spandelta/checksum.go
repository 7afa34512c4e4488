package spandelta

import (
	"hash/crc32"
	"math/bits"
)

// sums computes with checksums. They are polynomials over GF(2) modulo that of CRC-32C; bit 31 of a number is the
// coefficient of x^0. The method is that of zlib's crc32_combine.
type sums struct{ powers [bits.UintSize]uint32 } // x^(8·2^i)

func newSums() *sums {
	s := &sums{}
	power := uint32(1 << 23) // x^8
	for i := range s.powers {
		s.powers[i] = power
		power = multiplied(power, power)
	}
	return s
}

// of returns the checksum of a and then b, given theirs and the number of bytes of b.
func (s *sums) of(a, b uint32, size int) uint32 { return s.shifted(a, size) ^ b }

// between returns the checksum of b, given those of a and of a and then b, and the number of bytes of b.
func (s *sums) between(a, ab uint32, size int) uint32 { return ab ^ s.shifted(a, size) }

// shifted returns sum·x^(8·size).
func (s *sums) shifted(sum uint32, size int) uint32 {
	for n := uint(size); n != 0 && sum != 0; n &= n - 1 {
		sum = multiplied(sum, s.powers[bits.TrailingZeros(n)])
	}
	return sum
}

// multiplied returns the product of two polynomials.
func multiplied(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
