package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func randomFloats(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = r.Float32()*2 - 1
	}
	return out
}

// naive computes the product by its definition.
func naive(c []float32, ldc int, a matrix, b panels, m, n, k int, add bool) {
	for r := range m {
		for j := range n {
			var s float32
			if add {
				s = c[r*ldc+j]
			}
			for i := range k {
				s += float32(a.data[r*a.rs+i*a.ks] * b.data[j/panelWidth*b.tile+i*b.stride+j%panelWidth])
			}
			c[r*ldc+j] = s
		}
	}
}

func TestMatmulIsExact(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	kernels := map[string]kernel{"go": {}}
	if haveSIMD() {
		kernels["simd"] = kernel{simd: true}
	}
	for name, kn := range kernels {
		for _, m := range []int{1, 2, 5, 6, 7, 12, 17} {
			for _, n := range []int{16, 48} {
				for _, k := range []int{1, 3, 16, 64} {
					for _, add := range []bool{false, true} {
						ldc := n + 5
						want := randomFloats(r, m*ldc)
						got := append([]float32(nil), want...)
						plain := randomFloats(r, k*n)
						rhs := []panels{inPlace(plain, n), pack(make([]float32, k*n), plain, n, k, n)}
						lhs := []matrix{rowMajor(randomFloats(r, m*(k+3)), k+3), transposed(randomFloats(r, k*(m+2)), m+2)}
						a, b := lhs[r.IntN(2)], rhs[r.IntN(2)]
						naive(want, ldc, a, b, m, n, k, add)
						kn.matmul(got, ldc, a, b, m, n, k, add)
						for i := range want {
							if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
								t.Fatalf("%s m=%d n=%d k=%d add=%v: element %d is %v, want %v", name, m, n, k, add, i, got[i], want[i])
							}
						}
					}
				}
			}
		}
	}
}

func TestPackTransposed(t *testing.T) {
	t.Parallel()
	const n, k, stride = 19, 5, 7
	src := randomFloats(rand.New(rand.NewPCG(3, 4)), n*stride)
	buf := randomFloats(rand.New(rand.NewPCG(5, 6)), k*ceil16(n))
	p := packTransposed(buf, src, stride, k, n)
	for i := range k {
		for j := range ceil16(n) {
			var want float32
			if j < n {
				want = src[j*stride+i]
			}
			if got := p.data[j/panelWidth*p.tile+i*p.stride+j%panelWidth]; got != want {
				t.Fatalf("element (%d,%d) is %v, want %v", i, j, got, want)
			}
		}
	}
}

func BenchmarkMatmul(b *testing.B) {
	const m, k, n = 2048, 64, 256
	r := rand.New(rand.NewPCG(1, 2))
	a, w, c := randomFloats(r, m*k), randomFloats(r, k*n), make([]float32, m*n)
	p := pack(make([]float32, k*n), w, n, k, n)
	for _, simd := range []bool{true, false} {
		if simd && !haveSIMD() {
			continue
		}
		b.Run(fmt.Sprintf("simd=%v", simd), func(b *testing.B) {
			for b.Loop() {
				kernel{simd: simd}.matmul(c, n, rowMajor(a, k), p, m, n, k, false)
			}
			b.ReportMetric(2*m*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}
