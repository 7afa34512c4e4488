package pretrained

import (
	"container/list"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// Continuation is a prompt, and how it continues what was sampled before.
type Continuation struct {
	IDs []int32
	// Reused is how many of the ids are those of an earlier turn: its prompt, and its reply as it was sampled.
	Reused int
	// Break says why an earlier turn of the conversation could not be reused; empty if it was, or if there is none.
	Break string
}

// turns remembers what was sampled. A prompt that continues an earlier turn must begin with exactly its tokens, or the turns
// cannot be trained as one sequence; encoding the text again may give other tokens.
type turns struct {
	limit, maxBytes int

	mu     sync.Mutex
	recent list.List // of *turn, the latest first
	bytes  int       // that the turns take
}

// turn is a prompt and its reply, both as ids and as text. It has no reply until one is sampled.
type turn struct {
	prompt, reply         []int32
	promptText, replyText string
}

func (c *turn) size() int {
	return 4*(len(c.prompt)+len(c.reply)) + len(c.promptText) + len(c.replyText)
}

// put adds a turn, and drops the oldest ones beyond the limits. The lock is held.
func (t *turns) put(c *turn) {
	t.recent.PushFront(c)
	for t.bytes += c.size(); t.recent.Len() > t.limit || t.bytes > t.maxBytes; {
		oldest := t.recent.Back()
		t.recent.Remove(oldest)
		t.bytes -= oldest.Value.(*turn).size()
	}
}

// add remembers a reply to a prompt.
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
		if c.reply == nil { // it awaits this reply
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

// extend encodes a prompt. It begins with the ids of the longest turn that the prompt continues.
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

// find returns the longest turn that the text begins with, and the longest turn whose prompt, but not reply, it begins
// with. The lock is held.
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

// explain says where a conversation differs from a turn; text is what follows the turn's prompt in the conversation.
func (c *turn) explain(text string) string {
	at := 0
	for at < len(text) && at < len(c.replyText) && text[at] == c.replyText[at] {
		at++
	}
	clip := func(s string) string { return s[min(at, len(s)):min(at+40, len(s))] }
	return fmt.Sprintf("the template changes an earlier reply from byte %d on: it was %q and became %q", at, clip(c.replyText), clip(text))
}
