// Package firsthour uses agl like a new user: with agents that report their reward in a
// slightly wrong form, never call the model, or fail. Each mistake is a script with the
// expected exit code and the sentence that tells the user what to do. It has no code of its
// own.
package firsthour
