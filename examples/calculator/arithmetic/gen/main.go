// Command gen writes the data files of package arithmetic into data/ of the working directory.
package main

import (
	"fmt"
	"os"

	"github.com/agl-go/agl/examples/calculator/arithmetic"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	train, err := os.Create("data/train.jsonl")
	if err != nil {
		return err
	}
	heldOut, err := os.Create("data/heldout.jsonl")
	if err != nil {
		return err
	}
	if err := arithmetic.WriteData(train, heldOut); err != nil {
		return err
	}
	if err := train.Close(); err != nil {
		return err
	}
	return heldOut.Close()
}
