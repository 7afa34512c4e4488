package policy

import "golang.org/x/sys/cpu"

// haveSIMD reports whether this CPU (and its operating system) can run the assembly kernels. Setting
// GODEBUG=cpu.avx2=off turns them off.
func haveSIMD() bool { return cpu.X86.HasAVX2 }

const (
	floatBytes = 4
	tileRows   = 6 // rows of the largest kernel
)

// matmulSIMD is the part of [kernel.matmul] that uses the assembly kernels. Its caller has checked the bounds.
func matmulSIMD(c []float32, ldc int, a matrix, b panels, m, n, k int, add bool) {
	j := 0
	if m == 1 {
		for ; j+4*panelWidth <= n; j += 4 * panelWidth {
			kernel1x64(&c[j], &a.data[0], a.ks*floatBytes, &b.data[j/panelWidth*b.tile],
				b.tile*floatBytes, b.stride*floatBytes, k, add)
		}
	}
	for ; j < n; j += panelWidth {
		matmulPanelSIMD(c[j:], ldc, a, &b.data[j/panelWidth*b.tile], b.stride, m, k, add)
	}
}

// matmulPanelSIMD multiplies all rows by one panel.
func matmulPanelSIMD(c []float32, ldc int, a matrix, bp *float32, bs, m, k int, add bool) {
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

// kernel6x16 computes C = A·B, or C += A·B if add is set, for a tile of 6 rows and 16 columns. Element A[r,i] is at a + r·rs
// + i·ks, B[i,j] at b + i·bs + 4j, C[r,j] at c + r·ldc + 4j; all strides are in bytes. k must be at least 1.
//
//go:noescape
func kernel6x16(c *float32, ldc int, a *float32, rs, ks int, b *float32, bs, k int, add bool)

// kernel1x16 is kernel6x16 for a single row.
//
//go:noescape
func kernel1x16(c *float32, a *float32, ks int, b *float32, bs, k int, add bool)

// kernel4x16 is kernel6x16 for four rows, the remainder of the dimensions in use.
//
//go:noescape
func kernel4x16(c *float32, ldc int, a *float32, rs, ks int, b *float32, bs, k int, add bool)

// kernel1x64 is kernel1x16 for four panels of B, tile bytes apart.
//
//go:noescape
func kernel1x64(c *float32, a *float32, ks int, b *float32, tile, bs, k int, add bool)

// expKernel sets dst[i] = exp32(src[i]*scale - shift) for n rounded up to a multiple of 8.
//
//go:noescape
func expKernel(dst, src *float32, n int, scale, shift float32)

// rectifyKernel clears the elements of x whose sign bit is set. n is a positive multiple of 8.
//
//go:noescape
func rectifyKernel(x *float32, n int)

// rectifyBackwardKernel clears grad[i] where out[i], which has no sign bit, is 0. n is a positive multiple of 8.
//
//go:noescape
func rectifyBackwardKernel(grad, out *float32, n int)
