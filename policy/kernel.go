package policy

// panelWidth is the number of columns that a kernel works on at once. Every right-hand side has a multiple of
// it as its number of columns.
const panelWidth = 16

// tileRows is the number of rows of the large kernel.
const tileRows = 6

// matrix is the left-hand side of a product: element (r, i) is data[r*rs + i*ks]. A transposed matrix is the
// same data with the strides exchanged.
type matrix struct {
	data   []float32
	rs, ks int
}

// rowMajor is a matrix whose rows are stride apart.
func rowMajor(data []float32, stride int) matrix { return matrix{data: data, rs: stride, ks: 1} }

// transposed is the transpose of a matrix whose rows are stride apart.
func transposed(data []float32, stride int) matrix { return matrix{data: data, rs: 1, ks: stride} }

// panels is the right-hand side of a product, in panels of 16 columns: element (i, 16p+j) is
// data[p*tile + i*stride + j].
type panels struct {
	data         []float32
	tile, stride int
}

// inPlace views a row-major matrix as panels.
func inPlace(data []float32, stride int) panels {
	return panels{data: data, tile: panelWidth, stride: stride}
}

// pack copies the row-major k×n matrix src (rows stride apart) into contiguous panels in buf, which a product
// over many rows reads without cache conflicts.
func pack(buf, src []float32, stride, k, n int) panels {
	p := panels{data: buf[:k*n], tile: k * panelWidth, stride: panelWidth}
	for j := 0; j < n; j += panelWidth {
		dst := p.data[j*k : (j+panelWidth)*k]
		for i := range k {
			*(*[panelWidth]float32)(dst[i*panelWidth:]) = *(*[panelWidth]float32)(src[i*stride+j:])
		}
	}
	return p
}

// packTransposed makes panels of the transpose of the row-major n×k matrix src (rows stride apart); columns
// from n up to the next multiple of 16 are zero. The result is k×ceil16(n).
func packTransposed(buf, src []float32, stride, k, n int) panels {
	np := ceil16(n)
	p := panels{data: buf[:k*np], tile: k * panelWidth, stride: panelWidth}
	for j0 := 0; j0 < np; j0 += panelWidth {
		dst := p.data[j0*k : (j0+panelWidth)*k]
		for j := range panelWidth {
			if j0+j >= n {
				for i := range k {
					dst[i*panelWidth+j] = 0
				}
				continue
			}
			row := src[(j0+j)*stride : (j0+j)*stride+k]
			for i, v := range row {
				dst[i*panelWidth+j] = v
			}
		}
	}
	return p
}

func ceil16(n int) int { return (n + panelWidth - 1) / panelWidth * panelWidth }

// kernel multiplies matrices. Both of its ways give the same bits: each element of C is the sum over k in
// increasing order, starting from zero (or from C), every product and every sum rounded to float32. It
// follows that an element depends neither on the other rows of the product nor on how rows were batched.
type kernel struct {
	simd bool
}

// matmul computes C = A·B, or C += A·B if add is set, where A is m×k, B k×n and C m×n with rows ldc apart.
// n is a multiple of 16.
func (kn kernel) matmul(c []float32, ldc int, a matrix, b panels, m, n, k int, add bool) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	// One bounds check for each operand covers all that the tiles touch.
	_ = c[(m-1)*ldc+n-1]
	_ = a.data[(m-1)*a.rs+(k-1)*a.ks]
	_ = b.data[(n/panelWidth-1)*b.tile+(k-1)*b.stride+panelWidth-1]
	if !kn.simd {
		for j := 0; j < n; j += panelWidth {
			matmulPanel(c[j:], ldc, a, b.data[j/panelWidth*b.tile:], b.stride, m, k, add)
		}
		return
	}
	j := 0
	if m == 1 {
		for ; j+4*panelWidth <= n; j += 4 * panelWidth {
			kernel1x64(&c[j], &a.data[0], a.ks*floatBytes, &b.data[j/panelWidth*b.tile],
				b.tile*floatBytes, b.stride*floatBytes, k, add)
		}
	}
	for ; j < n; j += panelWidth {
		kn.panel(c[j:], ldc, a, &b.data[j/panelWidth*b.tile], b.stride, m, k, add)
	}
}

const floatBytes = 4

// panel multiplies all rows by one panel with the assembly kernels.
func (kn kernel) panel(c []float32, ldc int, a matrix, bp *float32, bs, m, k int, add bool) {
	i := 0
	for ; i+tileRows <= m; i += tileRows {
		kernel6x16(&c[i*ldc], ldc*floatBytes, &a.data[i*a.rs], a.rs*floatBytes, a.ks*floatBytes, bp, bs*floatBytes, k, add)
	}
	if i < m && m > tileRows && !add {
		// The last tile may overlap the one before: it computes the same values again.
		i = m - tileRows
		kernel6x16(&c[i*ldc], ldc*floatBytes, &a.data[i*a.rs], a.rs*floatBytes, a.ks*floatBytes, bp, bs*floatBytes, k, add)
		return
	}
	if i+4 <= m {
		kernel4x16(&c[i*ldc], ldc*floatBytes, &a.data[i*a.rs], a.rs*floatBytes, a.ks*floatBytes, bp, bs*floatBytes, k, add)
		i += 4
	}
	for ; i < m; i++ {
		kernel1x16(&c[i*ldc], &a.data[i*a.rs], a.ks*floatBytes, bp, bs*floatBytes, k, add)
	}
}

// matmulPanel is the portable kernel: m rows by one panel, in register tiles of 2×4. The conversions force
// each product to be rounded before it is added, so that no architecture fuses the two.
func matmulPanel(c []float32, ldc int, a matrix, b []float32, bs, m, k int, add bool) {
	for i := 0; i < m; i += 2 {
		// An odd last row is computed twice, with equal results.
		i1 := min(i+1, m-1)
		a0, a1 := a.data[i*a.rs:], a.data[i1*a.rs:]
		for j := 0; j < panelWidth; j += 4 {
			c0 := (*[4]float32)(c[i*ldc+j:])
			c1 := (*[4]float32)(c[i1*ldc+j:])
			var s00, s01, s02, s03, s10, s11, s12, s13 float32
			if add {
				s00, s01, s02, s03 = c0[0], c0[1], c0[2], c0[3]
				s10, s11, s12, s13 = c1[0], c1[1], c1[2], c1[3]
			}
			ao, bo := 0, j
			for range k {
				x0, x1 := a0[ao], a1[ao]
				y := (*[4]float32)(b[bo:])
				s00 += float32(x0 * y[0])
				s01 += float32(x0 * y[1])
				s02 += float32(x0 * y[2])
				s03 += float32(x0 * y[3])
				s10 += float32(x1 * y[0])
				s11 += float32(x1 * y[1])
				s12 += float32(x1 * y[2])
				s13 += float32(x1 * y[3])
				ao += a.ks
				bo += bs
			}
			c0[0], c0[1], c0[2], c0[3] = s00, s01, s02, s03
			c1[0], c1[1], c1[2], c1[3] = s10, s11, s12, s13
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
