package policy

import "golang.org/x/sys/cpu"

// haveSIMD reports whether this CPU (and its operating system) can run the assembly kernels. Setting
// GODEBUG=cpu.avx2=off turns them off.
func haveSIMD() bool { return cpu.X86.HasAVX2 }

// kernel6x16 computes C = A·B, or C += A·B if add is set, for a tile of 6 rows and 16 columns. Element
// A[r,i] is at a + r·rs + i·ks, B[i,j] at b + i·bs + 4j, C[r,j] at c + r·ldc + 4j; all strides are in bytes.
// k must be at least 1.
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

// rectifyBackwardKernel clears grad[i] where out[i], which has no sign bit, is 0. n is a positive multiple
// of 8.
//
//go:noescape
func rectifyBackwardKernel(grad, out *float32, n int)
