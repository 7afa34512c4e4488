// Package training runs the calculator example like a user: the real program, killed in the
// middle and started again. It has no code of its own.
package training
