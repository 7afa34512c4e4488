// Package dataset reads task files: each record is the input of a rollout, kept
// as the bytes that are in the file.
//
// It knows files and JSON. It must not know rollouts, the store, or what an
// agent expects to find in a task.
package dataset
