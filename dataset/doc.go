// Package dataset reads task files: each record is the input of a rollout.
//
// [Open] reads JSON Lines, CSV and Parquet files: all columns, or some of them under other names. [Load] is a short
// form for JSON Lines. A record of a JSON Lines file keeps its bytes; a row of a CSV or Parquet file becomes an
// object. Errors name the file and the line.
//
//	tasks, err := dataset.Load("tasks.jsonl")
//	reader, err := dataset.Open("tasks.csv", dataset.Options{Columns: []dataset.Column{{Name: "q", As: "question"}}})
//
// The package knows files and JSON. It must not know rollouts, the store, or what an agent expects in a task.
package dataset
