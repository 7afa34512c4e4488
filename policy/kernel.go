package policy

// kernel multiplies matrices, with assembly or in plain Go. Both give the same bits: an element of C is the sum over k in
// increasing order, starting from zero (or from C), with every product and every sum rounded to float32. So an element
// does not depend on the other rows of the product or on how rows are batched.
type kernel struct {
	simd bool
}

// matmul computes C = A·B, or C += A·B if add is set, where A is m×k, B k×n and C m×n with rows ldc apart.
// m, n and k are at least 1, and n is a multiple of 16.
func (kn kernel) matmul(c []float32, ldc int, a matrix, b panels, m, n, k int, add bool) {
	// One bounds check per operand covers everything that the kernels access.
	_ = c[(m-1)*ldc+n-1]
	_ = a.data[(m-1)*a.rs+(k-1)*a.ks]
	_ = b.data[(n/panelWidth-1)*b.tile+(k-1)*b.stride+panelWidth-1]
	if !kn.simd {
		for j := 0; j < n; j += panelWidth {
			matmulPanel(c[j:], ldc, a, b.data[j/panelWidth*b.tile:], b.stride, m, k, add)
		}
		return
	}
	matmulSIMD(c, ldc, a, b, m, n, k, add)
}

// matmulPanel is the portable kernel: m rows by one panel. The conversion rounds each product before it is added, so no
// architecture can fuse the two. Tiles of registers are not faster.
func matmulPanel(c []float32, ldc int, a matrix, b []float32, bs, m, k int, add bool) {
	for r := range m {
		row := (*[panelWidth]float32)(c[r*ldc:])
		if !add {
			clear(row[:])
		}
		for i := range k {
			x, y := a.data[r*a.rs+i*a.ks], (*[panelWidth]float32)(b[i*bs:])
			for j := range row {
				row[j] += float32(x * y[j])
			}
		}
	}
}

// expAll sets dst[i] = exp32(src[i]*scale - shift) for i < n. It may write up to the next multiple of 8, so
// both slices must reach that far.
func (kn kernel) expAll(dst, src []float32, n int, scale, shift float32) {
	if kn.simd {
		whole := (n + 7) / 8 * 8
		_, _ = dst[whole-1], src[whole-1]
		expKernel(&dst[0], &src[0], n, scale, shift)
		return
	}
	for i, v := range src[:n] {
		dst[i] = exp32(float32(v*scale) - shift)
	}
}
