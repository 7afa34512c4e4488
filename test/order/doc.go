// Package order holds the property that an attempt's spans stand in the order of what
// happened, whoever records them: a reward follows the model calls that earned it.
package order
