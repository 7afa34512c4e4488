// Package order tests that an attempt's spans are in the order of what happened, whoever
// records them: a reward follows the model calls that earned it.
package order
