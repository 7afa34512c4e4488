package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// dataFiles are the JSON Lines files of the example: which of three digits is
// the largest?
type dataFiles struct{ train, val, demos []byte }

const (
	exampleVal  = 120 // of the 720 questions that there are
	demosOfEach = 2
)

// exampleData writes the files; they are the same each time. No question of val
// is in the others. Demonstrations name any of the three, so that whoever
// imitates them is right once in three times.
func exampleData() dataFiles {
	const digits = 10
	var questions [][3]int
	for a := range digits {
		for b := range digits {
			for c := range digits {
				if a != b && b != c && a != c {
					questions = append(questions, [3]int{a, b, c})
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(questions), func(i, j int) { questions[i], questions[j] = questions[j], questions[i] })
	var train, val, demos bytes.Buffer
	for i, q := range questions {
		out := &val
		text := fmt.Sprintf("largest of %d %d %d?", q[0], q[1], q[2])
		if i >= exampleVal {
			out = &train
			for range demosOfEach {
				fmt.Fprintf(&demos, `{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%d"}]}`+"\n", text, q[rng.IntN(len(q))])
			}
		}
		fmt.Fprintf(out, `{"question": "%s", "answer": "%d"}`+"\n", text, max(q[0], q[1], q[2]))
	}
	return dataFiles{train: train.Bytes(), val: val.Bytes(), demos: demos.Bytes()}
}
