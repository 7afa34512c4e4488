package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
)

const (
	wordsPerTurn   = 300
	tokensPerReply = 100
	vocabulary     = 2000
)

// word returns the n-th word of the vocabulary: two to four syllables of two letters.
func word(n int) string {
	const syllables = "taremolisukavenopidafe"
	const count = len(syllables) / 2
	var text []byte
	for n += count; n > 0; n /= count {
		text = append(text, syllables[2*(n%count):2*(n%count)+2]...)
	}
	return string(text)
}

func words(source *rand.Rand, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = word(source.IntN(vocabulary))
	}
	return strings.Join(out, " ")
}

// seeded makes the texts of a turn, which are the same in every run.
func seeded(what, turn int) *rand.Rand { return rand.New(rand.NewPCG(uint64(what), uint64(turn))) }

// question and answer return the texts of a turn.
func question(turn int) string { return words(seeded(1, turn), wordsPerTurn) }
func answer(turn int) string   { return words(seeded(2, turn), tokensPerReply) }

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk is the agent's side: the history of its conversation.
type talk struct{ messages []message }

func (t *talk) user() {
	t.messages = append(t.messages, message{"user", question(len(t.messages) / 2)})
}

func (t *talk) assistant() {
	t.messages = append(t.messages, message{"assistant", answer(len(t.messages) / 2)})
}

func (t *talk) request() []byte {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": t.messages, "temperature": 1})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return body
}

// everyTurn makes an engine reply to each turn with a reply of its own, which has the ids of the whole prompt.
const everyTurn = -1

// newEngine plays an engine that gives token ids and log-probabilities: a token for each word
// and one between messages. It replies as in one turn, counted from 0, or as in everyTurn.
func newEngine(only int) *httptest.Server {
	var replies sync.Map // of []byte by turn; a cache, so that the engine costs nothing
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := only
		var err error
		if turn == everyTurn {
			turn, err = turnOf(r.Body)
		} else { // an engine that does nothing else leaves more of the proxy's share to be seen
			_, err = io.Copy(io.Discard, r.Body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		made, known := replies.Load(turn)
		if !known {
			made, _ = replies.LoadOrStore(turn, reply(turn))
		}
		text, _ := made.([]byte)
		_, _ = w.Write(text) // the caller reports an incomplete reply
	}))
}

// turnOf returns in which turn of its conversation a request is, counted from 0.
func turnOf(body io.Reader) (int, error) {
	var request struct {
		Messages []message `json:"messages"`
	}
	err := json.UnmarshalRead(body, &request)
	return len(request.Messages) / 2, err
}

// ids appends the token ids of a text.
func ids(dst *bytes.Buffer, source *rand.Rand, n int) {
	for range n {
		if dst.Bytes()[dst.Len()-1] != '[' {
			dst.WriteByte(',')
		}
		fmt.Fprint(dst, source.IntN(150_000))
	}
}

// reply is the engine's reply in a turn, counted from 0.
func reply(turn int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":"m","prompt_token_ids":[`, turn)
	for i := range turn + 1 {
		ids(&b, seeded(3, i), wordsPerTurn*4/3)
		if i < turn {
			ids(&b, seeded(4, i), tokensPerReply)
		}
	}
	text := answer(turn)
	fmt.Fprintf(&b, `],"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop","logprobs":{"content":[`, text)
	source := seeded(5, turn)
	for i, token := range strings.Fields(text) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"token":%q,"logprob":%.6f,"bytes":null,"top_logprobs":[]}`, " "+token, -source.ExpFloat64())
	}
	b.WriteString(`]},"token_ids":[`)
	ids(&b, seeded(4, turn), tokensPerReply)
	prompt := (turn+1)*wordsPerTurn*4/3 + turn*tokensPerReply
	fmt.Fprintf(&b, `]}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, prompt, tokensPerReply, prompt+tokensPerReply)
	return b.Bytes()
}
