package pretrained

import (
	"container/list"
	"fmt"
	"slices"
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
	bytes  int       // of all of them
}

// maxTurnBytes bounds the memory of turns, in bytes.
const maxTurnBytes = 256 << 20

// turn is a prompt, as ids and as the text that it was rendered as, and its reply; without a reply nothing was
// sampled yet.
type turn struct {
	prompt, reply         []int32
	promptText, replyText string
}

func (c *turn) size() int {
	return 4*(len(c.prompt)+len(c.reply)) + len(c.promptText) + len(c.replyText)
}

// put keeps a turn, and drops the oldest ones beyond the limits.
func (t *turns) put(c *turn) {
	t.recent.PushFront(c)
	for t.bytes += c.size(); t.recent.Len() > t.limit || t.bytes > maxTurnBytes; {
		oldest := t.recent.Back()
		t.recent.Remove(oldest)
		t.bytes -= oldest.Value.(*turn).size()
	}
}

// add keeps a reply.
func (t *turns) add(tok *tokenizer.Tokenizer, prompt, reply []int32) {
	if len(reply) == 0 {
		return
	}
	latest := &turn{reply: slices.Clone(reply), replyText: tok.Decode(reply)}
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.recent.Front(); e != nil; e = e.Next() {
		c := e.Value.(*turn)
		if !slices.Equal(c.prompt, prompt) {
			continue
		}
		latest.prompt, latest.promptText = c.prompt, c.promptText
		if c.reply == nil { // it was waiting for this
			t.recent.Remove(e)
			t.bytes -= c.size()
		}
		break
	}
	if latest.prompt == nil {
		latest.prompt, latest.promptText = slices.Clone(prompt), tok.Decode(prompt)
	}
	t.put(latest)
}

// extend encodes a prompt, beginning with the ids of the longest turn that it continues.
func (t *turns) extend(tok *tokenizer.Tokenizer, text string) Continuation {
	t.mu.Lock()
	defer t.mu.Unlock()
	best, broken := t.find(text)
	var c Continuation
	rest := text
	if best != nil {
		c.IDs = slices.Concat(best.prompt, best.reply)
		c.Reused = len(c.IDs)
		rest = text[len(best.promptText)+len(best.replyText):]
	}
	if broken != nil && (best == nil || len(broken.promptText) > len(best.promptText)) {
		c.Break = broken.explain(text[len(broken.promptText):])
	}
	c.IDs = tok.Append(c.IDs, rest, tokenizer.Options{Added: true})
	t.put(&turn{prompt: slices.Clone(c.IDs), promptText: text})
	return c
}

// find is the longest turn whose text begins the text, and the longest whose prompt does but not its reply.
func (t *turns) find(text string) (best, broken *turn) {
	for e := t.recent.Front(); e != nil; e = e.Next() {
		c := e.Value.(*turn)
		if c.reply == nil || len(c.promptText) >= len(text) {
			continue
		}
		rest, ok := strings.CutPrefix(text, c.promptText)
		switch {
		case !ok:
		case !strings.HasPrefix(rest, c.replyText):
			if broken == nil || len(c.promptText) > len(broken.promptText) {
				broken = c
			}
		case best == nil || len(c.promptText)+len(c.replyText) > len(best.promptText)+len(best.replyText):
			best = c
		}
	}
	return best, broken
}

// explain says where a conversation parts from a turn. text is what follows the turn's prompt in it.
func (c *turn) explain(text string) string {
	at := 0
	for at < len(text) && at < len(c.replyText) && text[at] == c.replyText[at] {
		at++
	}
	clip := func(s string) string { return s[min(at, len(s)):min(at+40, len(s))] }
	return fmt.Sprintf("the template does not keep an earlier reply from byte %d on: it was %q and became %q", at, clip(c.replyText), clip(text))
}
