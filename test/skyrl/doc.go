// Package skyrl drives a real engine: SkyRL's Tinker server with its JAX backend on the CPU, and a tiny Qwen 3 with
// random weights. The tests are behind the build tag skyrl, because they install it; run them with make skyrl.
package skyrl
