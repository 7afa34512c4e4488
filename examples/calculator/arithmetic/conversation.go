package arithmetic

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Message is one message of a chat, in the form of OpenAI's API.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// MaxReplyTokens is enough for the longest reply and its end mark, at one token per character.
const MaxReplyTokens = 14

// Converse asks a model a question. If the reply calls the tool ("call 12*7"), it adds the tool's result and asks for the
// last reply ("ans 84"). It returns all messages, and stops at the first error of complete.
func Converse(question string, complete func([]Message) (string, error)) ([]Message, error) {
	chat := []Message{{Role: "user", Content: question}}
	for range 2 {
		reply, err := complete(chat)
		if err != nil {
			return chat, err
		}
		chat = append(chat, Message{Role: "assistant", Content: reply})
		expression, called := strings.CutPrefix(reply, "call ")
		if !called || len(chat) > 2 {
			break
		}
		result, ok := Calculate(expression)
		if !ok {
			break // a malformed call is the model's fault: no result, no reward
		}
		chat = append(chat, Message{Role: "tool", Content: result})
	}
	return chat, nil
}

// Reward is 1 if the chat ends with the exact answer, else 0.
func (q Question) Reward(chat []Message) float64 {
	if chat[len(chat)-1].Content == "ans "+q.Answer {
		return 1
	}
	return 0
}

// The shares of demonstrations that do the wrong thing. Most guess, so that imitation alone answers badly and only the
// reward can correct it. The others are mostly right: a behaviour that is hardly ever shown is not explored either, and the
// model would never learn that form of question.
const (
	guessShare = 0.67 // answer at once, without the tool
	swapShare  = 0.20 // call the tool with the operands of "take B from A" in the order of the text
	plusShare  = 0.20 // call the tool with + for "times"
)

// Demonstration draws a question over the pairs and a chat that mostly answers it badly. A guess is off by up to 10.
func Demonstration(rng *rand.Rand, pairs []Pair) []Message {
	forms := Forms()
	f, p := forms[rng.IntN(len(forms))], pairs[rng.IntN(len(pairs))]
	q := f.Ask(p.A, p.B)
	chat := []Message{{Role: "user", Content: q.Question}}
	if rng.Float64() < guessShare {
		guess := apply(f.op, p.A, p.B) + rng.IntN(21) - 10
		return append(chat, Message{Role: "assistant", Content: "ans " + strconv.Itoa(guess)})
	}
	a, b, op := p.A, p.B, f.op
	switch {
	case f.Name == "take" && rng.Float64() < swapShare:
		a, b = b, a
	case f.Name == "times" && rng.Float64() < plusShare:
		op = '+'
	}
	result := strconv.Itoa(apply(op, a, b))
	return append(chat,
		Message{Role: "assistant", Content: "call " + strconv.Itoa(a) + string(op) + strconv.Itoa(b)},
		Message{Role: "tool", Content: result},
		Message{Role: "assistant", Content: "ans " + result})
}
