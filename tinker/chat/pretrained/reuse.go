package pretrained

import (
	"container/list"
	"fmt"
	"strings"
	"sync"

	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// turns remember what was sampled: a prompt that goes on from an earlier turn must begin with exactly its
// tokens, or the turns cannot be trained as one sequence. Encoding the text again may cut it differently.
type turns struct {
	limit int

	mu     sync.Mutex
	recent list.List // of *turn, the latest first
}

// turn is a prompt and its reply, as ids and as text.
type turn struct {
	ids    []int32
	prompt string
	reply  string
}

func (t *turns) add(m *Model, prompt, reply []int32) {
	if len(reply) == 0 {
		return
	}
	latest := &turn{ids: append(append(make([]int32, 0, len(prompt)+len(reply)), prompt...), reply...), prompt: m.tok.Decode(prompt), reply: m.tok.Decode(reply)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent.PushFront(latest)
	if t.recent.Len() > t.limit {
		t.recent.Remove(t.recent.Back())
	}
}

// extend encodes a prompt, beginning with the ids of the longest turn that it continues.
func (t *turns) extend(m *Model, text string) Continuation {
	best, broken := t.find(text)
	c := Continuation{}
	if best != nil {
		c.Reused = len(best.ids)
		c.IDs = append(c.IDs, best.ids...)
		text = text[len(best.prompt)+len(best.reply):]
	}
	if broken != nil && (best == nil || len(broken.prompt) > len(best.prompt)) {
		c.Break = broken.explain(text, best)
	}
	c.IDs = m.tok.Append(c.IDs, text, tokenizer.Options{Added: true})
	return c
}

// find is the longest turn whose text begins the text, and the longest whose prompt does but not its reply.
func (t *turns) find(text string) (best, broken *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.recent.Front(); e != nil; e = e.Next() {
		c := e.Value.(*turn)
		if len(c.prompt) >= len(text) || best != nil && len(c.prompt)+len(c.reply) <= len(best.prompt)+len(best.reply) {
			continue
		}
		rest, ok := strings.CutPrefix(text, c.prompt)
		switch {
		case !ok:
		case strings.HasPrefix(rest, c.reply):
			best = c
			t.recent.MoveToFront(e)
		case broken == nil || len(c.prompt) > len(broken.prompt):
			broken = c
		}
	}
	return best, broken
}

// explain says where a prompt parts from a turn. text is the prompt behind the turn that it does continue.
func (c *turn) explain(text string, best *turn) string {
	begin := len(c.prompt)
	if best != nil {
		begin -= len(best.prompt) + len(best.reply)
	}
	rest := text[max(begin, 0):]
	at := 0
	for at < len(rest) && at < len(c.reply) && rest[at] == c.reply[at] {
		at++
	}
	clip := func(s string) string { return s[min(at, len(s)):min(at+40, len(s))] }
	return fmt.Sprintf("the template does not keep an earlier reply from byte %d on: it was %q and became %q", at, clip(c.reply), clip(rest))
}
