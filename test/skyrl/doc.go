// Package skyrl drives a real engine: SkyRL's Tinker server with its JAX backend on the CPU, and a tiny Qwen 3 with
// random weights. The tests are behind the build tag skyrl, because they install it; run them with make skyrl. With the
// number of GPUs in AGL_SKYRL_GPUS the engine is on those (docs/engines.md).
package skyrl
