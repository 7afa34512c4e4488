// Package sft trains a model on demonstrations: cross-entropy over sequences of
// tokens, for a fixed number of steps. It warms a model up for reinforcement
// learning, or stands alone.
//
// It knows tokens and the training protocol. It must not know text, agents or
// the store.
package sft
