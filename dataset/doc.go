// Package dataset reads task files: each record is the input of a rollout. A
// record of a JSON Lines file is kept as the bytes that are in the file; a row of
// a CSV or Parquet file becomes an object.
//
// It knows files and JSON. It must not know rollouts, the store, or what an
// agent expects to find in a task.
package dataset
