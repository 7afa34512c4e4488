// Package training runs the calculator example as a person would: the real
// program, killed in the middle and started again. It has no code of its own.
package training
