//go:build !amd64

package policy

// haveSIMD reports whether there are assembly kernels for this architecture.
func haveSIMD() bool { return false }

// The kernels are never called where haveSIMD is false; they exist so that matmul compiles everywhere.

func kernel6x16(_ *float32, _ int, _ *float32, _, _ int, _ *float32, _, _ int, _ bool) {
	panic("policy: no assembly kernel on this architecture")
}

func kernel1x16(_ *float32, _ *float32, _ int, _ *float32, _, _ int, _ bool) {
	panic("policy: no assembly kernel on this architecture")
}

func kernel4x16(_ *float32, _ int, _ *float32, _, _ int, _ *float32, _, _ int, _ bool) {
	panic("policy: no assembly kernel on this architecture")
}

func kernel1x64(_ *float32, _ *float32, _ int, _ *float32, _, _, _ int, _ bool) {
	panic("policy: no assembly kernel on this architecture")
}

func expKernel(_, _ *float32, _ int, _, _ float32) {
	panic("policy: no assembly kernel on this architecture")
}

func rectifyKernel(_ *float32, _ int) {
	panic("policy: no assembly kernel on this architecture")
}

func rectifyBackwardKernel(_, _ *float32, _ int) {
	panic("policy: no assembly kernel on this architecture")
}
