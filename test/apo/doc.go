// Package apo tunes prompts whose best versions are known, with many seeds. It checks how often they are found, how often the
// reported interval covers the true gain, and how often a gain is reported where there is none. `make apo` runs it.
package apo
