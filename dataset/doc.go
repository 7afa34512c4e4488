// Package dataset reads task files: each record is the input of a rollout.
//
// [Open] reads JSON Lines, CSV and Parquet files, all columns or some of them under other names; [Load] is the short form
// for a JSON Lines file. A record of a JSON Lines file keeps the bytes that are in the file; a row of a CSV or Parquet file
// becomes an object. Errors name the file and the line.
//
// The package knows files and JSON. It must not know rollouts, the store, or what an agent expects to find in a task.
package dataset
