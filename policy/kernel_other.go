//go:build !amd64

package policy

// haveSIMD reports whether there are assembly kernels for this architecture.
func haveSIMD() bool { return false }

// The functions below exist so that the package compiles. They are never called where haveSIMD is false.

const noKernel = "policy: no assembly kernel on this architecture"

func matmulSIMD(_ []float32, _ int, _ matrix, _ panels, _, _, _ int, _ bool) { panic(noKernel) }

func expKernel(_, _ *float32, _ int, _, _ float32) { panic(noKernel) }

func rectifyKernel(_ *float32, _ int) { panic(noKernel) }

func rectifyBackwardKernel(_, _ *float32, _ int) { panic(noKernel) }
