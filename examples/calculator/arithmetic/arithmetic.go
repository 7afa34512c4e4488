// Package arithmetic is the task of the calculator example: questions about two numbers, a tool that computes,
// demonstrations that are wrong more often than right, and an exact reward. It must not know models or agl.
package arithmetic

import (
	_ "embed"
	"math/rand/v2"
	"strconv"
	"strings"
)

// The data files: one JSON question per line. No operand pair of HeldOut occurs in Train or in a demonstration.
var (
	//go:embed data/train.jsonl
	Train []byte
	//go:embed data/heldout.jsonl
	HeldOut []byte
)

// Question is one task.
type Question struct {
	Question string `json:"question"`
	Form     string `json:"form"`
	Answer   string `json:"answer"`
}

// Form is one way to ask for an operation. In its text, A and B stand for the operands.
type Form struct {
	Name string
	text string
	op   byte
}

// Forms returns the five ways to ask. The last one names its operands in the reverse of
// the order in which they are subtracted.
func Forms() []Form {
	return []Form{
		{"plus", "A plus B", '+'},
		{"add", "add A and B", '+'},
		{"minus", "A minus B", '-'},
		{"times", "A times B", '*'},
		{"take", "take B from A", '-'},
	}
}

// MaxOperand is the largest operand; the smallest is 1.
const MaxOperand = 99

// Ask returns the question about a and b, 1 to MaxOperand each.
func (f Form) Ask(a, b int) Question {
	text := strings.NewReplacer("A", strconv.Itoa(a), "B", strconv.Itoa(b)).Replace(f.text)
	return Question{Question: text, Form: f.Name, Answer: strconv.Itoa(apply(f.op, a, b))}
}

func apply(op byte, a, b int) int {
	switch op {
	case '+':
		return a + b
	case '-':
		return a - b
	default:
		return a * b
	}
}

// Calculate is the tool: it evaluates an expression such as 12*7. An expression
// that is not two numbers with +, - or * between them is not ok.
func Calculate(expression string) (result string, ok bool) {
	i := strings.IndexAny(expression, "+-*")
	if i < 1 {
		return "", false
	}
	a, errA := strconv.ParseUint(expression[:i], 10, 16)
	b, errB := strconv.ParseUint(expression[i+1:], 10, 16)
	if errA != nil || errB != nil {
		return "", false
	}
	return strconv.Itoa(apply(expression[i], int(a), int(b))), true
}

// Pair is the operands of a question.
type Pair struct{ A, B int }

// SplitPairs returns all operand pairs, a tenth of them held out.
func SplitPairs() (train, heldOut []Pair) {
	// The split is part of the task and does not depend on a run's seed.
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([]Pair, 0, MaxOperand*MaxOperand)
	for a := 1; a <= MaxOperand; a++ {
		for b := 1; b <= MaxOperand; b++ {
			all = append(all, Pair{a, b})
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	cut := len(all) / 10
	return all[cut:], all[:cut]
}
