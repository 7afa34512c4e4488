package arithmetic

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
)

var write = flag.Bool("write", false, "write the data files")

func TestDataFilesAreTheirGenerator(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	trainPairs, heldOutPairs := SplitPairs()
	for _, f := range []struct {
		name  string
		data  []byte
		pairs []Pair
		n     int
	}{{"data/train.jsonl", Train, trainPairs, 3200}, {"data/heldout.jsonl", HeldOut, heldOutPairs, 256}} {
		var want bytes.Buffer
		for _, q := range drawQuestions(rng, f.pairs, f.n) {
			line, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			want.Write(append(line, '\n'))
		}
		if *write {
			if err := os.WriteFile(f.name, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if !bytes.Equal(f.data, want.Bytes()) {
			t.Errorf("%s is not what is generated; run this test with -write", f.name)
		}
	}
}

// drawQuestions draws n questions over the pairs, every form equally often, and no question twice.
func drawQuestions(rng *rand.Rand, pairs []Pair, n int) []Question {
	forms := Forms()
	out := make([]Question, 0, n)
	seen := make(map[string]bool, n)
	for len(out) < n {
		p := pairs[rng.IntN(len(pairs))]
		q := forms[len(out)%len(forms)].Ask(p.A, p.B)
		if !seen[q.Question] {
			seen[q.Question] = true
			out = append(out, q)
		}
	}
	return out
}

func TestSplitPairs(t *testing.T) {
	t.Parallel()
	train, heldOut := SplitPairs()
	if len(heldOut) != MaxOperand*MaxOperand/10 || len(train)+len(heldOut) != MaxOperand*MaxOperand {
		t.Errorf("%d train, %d held out", len(train), len(heldOut))
	}
	seen := map[Pair]bool{}
	for _, p := range slices.Concat(train, heldOut) {
		if seen[p] {
			t.Fatalf("pair %v occurs twice", p)
		}
		seen[p] = true
	}
}

func TestConverse(t *testing.T) {
	t.Parallel()
	q := Forms()[4].Ask(30, 12)
	if q.Question != "take 12 from 30" || q.Answer != "18" {
		t.Fatalf("question is %+v", q)
	}
	for _, tc := range []struct {
		name     string
		replies  []string
		messages int
		reward   float64
	}{
		{"tool and answer", []string{"call 30-12", "ans 18"}, 4, 1},
		{"guess", []string{"ans 18"}, 2, 1},
		{"wrong guess", []string{"ans 17"}, 2, 0},
		{"swapped", []string{"call 12-30", "ans -18"}, 4, 0},
		{"malformed call", []string{"call 12"}, 2, 0},
		{"no first operand", []string{"call -12"}, 2, 0},
		{"two operators", []string{"call 1+2+3"}, 2, 0},
		{"calls forever", []string{"call 1+1", "call 2+2"}, 4, 0},
		{"garbage", []string{"\x00"}, 2, 0},
		{"empty", []string{""}, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			replies := tc.replies
			chat, err := Converse(q.Question, func([]Message) (string, error) {
				r := replies[0]
				replies = replies[1:]
				return r, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(chat) != tc.messages || q.Reward(chat) != tc.reward || len(replies) != 0 {
				t.Errorf("%d messages, reward %v, %d replies left: %v", len(chat), q.Reward(chat), len(replies), chat)
			}
		})
	}
}

// A learner that imitates perfectly must stay far from solving the task.
func TestDemonstrationsAreMostlyWrong(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	pairs, _ := SplitPairs()
	const n = 5000
	right, tooled := 0, 0
	for range n {
		chat := Demonstration(rng, pairs)
		text, answer := chat[0].Content, chat[len(chat)-1].Content
		if len(chat) == 4 {
			tooled++
		}
		for _, f := range Forms() {
			for _, p := range operandsOf(text) {
				if q := f.Ask(p.A, p.B); q.Question == text && answer == "ans "+q.Answer {
					right++
				}
			}
		}
	}
	if share := float64(tooled) / n; share < 0.31 || share > 0.35 {
		t.Errorf("%.3f of the demonstrations use the tool", share)
	}
	if share := float64(right) / n; share < 0.29 || share > 0.38 {
		t.Errorf("%.3f of the demonstrations are right", share)
	}
}

// operandsOf returns the two numbers of a question in both orders.
func operandsOf(text string) []Pair {
	var numbers []int
	current := -1
	for _, c := range text + " " {
		switch {
		case c >= '0' && c <= '9':
			current = max(current, 0)*10 + int(c-'0')
		case current >= 0:
			numbers = append(numbers, current)
			current = -1
		}
	}
	if numbers[0] == numbers[1] {
		return []Pair{{numbers[0], numbers[1]}}
	}
	return []Pair{{numbers[0], numbers[1]}, {numbers[1], numbers[0]}}
}
