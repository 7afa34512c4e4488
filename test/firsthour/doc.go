// Package firsthour tries agl as new users do: with agents that report their reward
// in a slightly wrong form, never call the model, or fail. Each mistake is a script with
// the exit code and the sentence that leads out. It has no code of its own.
package firsthour
