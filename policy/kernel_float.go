package policy

import "math"

// Training must give the same bits on every architecture. So the functions here use only operations that IEEE 754
// defines to the last bit, and convert every product that is added, which forbids fusing. The standard library's Exp and
// Log differ by architecture.

// exp32 is e^x in float32, to about 2 ulp. It saturates: 0 below -87.3, about 3.4e38 above 88.7.
func exp32(x float32) float32 {
	const (
		log2e = 1.44269504088896341
		// ln 2 in two parts, so that n·ln2Hi is exact for the n that occur.
		ln2Hi = 0.693359375
		ln2Lo = -2.12194440e-4
		// Adding and subtracting 1.5·2^23 rounds to the nearest integer.
		shift = 12582912
	)
	if x < -87.3 {
		return 0
	}
	if x > 88.7 {
		x = 88.7
	}
	n := float32(x*log2e) + shift
	n -= shift
	r := x - float32(n*ln2Hi)
	r -= float32(n * ln2Lo)
	// Minimax polynomial of e^r on [-ln2/2, ln2/2] (the coefficients of Cephes' expf).
	p := float32(1.9875691500e-4)
	p = float32(p*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	p = float32(float32(p*r)*r) + r + 1
	// Scale in two steps: 2^n itself overflows for n = 128.
	half := int32(n) / 2
	return p * pow2(half) * pow2(int32(n)-half)
}

// pow2 is 2^n for -126 ≤ n ≤ 127.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// log32 is the natural logarithm of a positive, normal, finite x, computed in float64 and rounded once.
func log32(x float32) float32 {
	const ln2 = 0.693147180559945309417232121458
	bits := math.Float32bits(x)
	e := int32(bits>>23) - 127
	m := float64(math.Float32frombits(bits&0x7fffff | 127<<23)) // in [1, 2)
	if m > math.Sqrt2 {
		m /= 2
		e++
	}
	// log m = 2·atanh(s), s = (m-1)/(m+1), |s| ≤ 0.172: nine odd terms give 1e-16.
	s := (m - 1) / (m + 1)
	z := s * s
	p := 1.0 / 17
	for k := 15; k >= 1; k -= 2 {
		p = float64(p*z) + 1/float64(k)
	}
	return float32(float64(2*s*p) + float64(float64(e)*ln2))
}

// sqrt32 is the correctly rounded square root.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// dot is the inner product in a fixed order with four independent chains of additions. The lengths are equal and a
// multiple of 4.
func dot(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float32
	for ; len(x) >= 4 && len(y) >= 4; x, y = x[4:], y[4:] {
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
	}
	return (s0 + s1) + (s2 + s3)
}

// addTo is dst += src.
func addTo(dst, src []float32) {
	src = src[:len(dst)]
	for i, v := range src {
		dst[i] += v
	}
}
