// Package apo tunes prompts whose best versions are known, with many seeds: how often they are found, how often the reported
// interval covers the true gain, and how often a gain is reported where there is none. It runs by `make apo`.
package apo
