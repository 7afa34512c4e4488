package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestExp32(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for range 200000 {
		x := float32(r.Float64()*175 - 87)
		want := math.Exp(float64(x))
		if rel := math.Abs(float64(exp32(x))-want) / want; rel > worst {
			worst = rel
		}
	}
	if worst > 3e-7 {
		t.Errorf("largest relative error %g, want at most 3e-7", worst)
	}
	for _, c := range []struct{ x, want float32 }{
		{0, 1}, {float32(math.Inf(-1)), 0}, {-88, 0}, {-1e30, 0},
	} {
		if got := exp32(c.x); got != c.want {
			t.Errorf("exp32(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := exp32(float32(math.Inf(1))); !(got > 3e38) || math.IsInf(float64(got), 1) {
		t.Errorf("exp32(+Inf) = %v, want a large finite number", got)
	}
}

func TestExpKernelIsExact(t *testing.T) {
	t.Parallel()
	if !haveSIMD() {
		t.Skip("no assembly kernels on this processor")
	}
	r := rand.New(rand.NewPCG(3, 4))
	src := []float32{0, float32(math.Copysign(0, -1)), 1, -1, -87.2, -87.3, -87.31, -88, -1e30, 88, 88.7, 89, 1e30, 1e-30, -87.29999, 0.34657359}
	for range 1 << 16 {
		src = append(src, float32(r.Float64()*200-100))
	}
	simd, plain := make([]float32, len(src)), make([]float32, len(src))
	for _, c := range []struct{ scale, shift float32 }{{1, 0}, {0.25, 3.5}, {1, -7.25}} {
		kernel{simd: true}.expAll(simd, src, len(src), c.scale, c.shift)
		kernel{}.expAll(plain, src, len(src), c.scale, c.shift)
		for i := range src {
			if math.Float32bits(simd[i]) != math.Float32bits(plain[i]) {
				t.Fatalf("exp(%v·%v−%v) is %v in assembly, %v in Go", src[i], c.scale, c.shift, simd[i], plain[i])
			}
		}
	}
}

func TestLog32(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 100000 {
		x := float32(math.Exp(r.Float64()*60 - 30))
		want := math.Log(float64(x))
		if err := math.Abs(float64(log32(x)) - want); err > 6e-8*max(1, math.Abs(want)) {
			t.Fatalf("log32(%v) = %v, want %v", x, log32(x), want)
		}
	}
	if got := log32(1); got != 0 {
		t.Errorf("log32(1) = %v, want 0", got)
	}
}
