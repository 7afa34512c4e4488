package exchange

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/httpbody"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/upstream"
)

// tokenizePath is where vLLM counts the tokens of a request; it is not below /v1.
const tokenizePath = upstream.ServerRoot + "/tokenize"

const (
	// countTimeout bounds how long an engine may take to count a prompt.
	countTimeout = 5 * time.Second
	// countPause is how long an engine that could not count is not asked again.
	countPause = 10 * time.Minute
)

// exactly returns a function that asks the engine that will serve a call to count its prompt with
// its own tokenizer and chat format. The result is a tighter upper bound of the call's usage.
func (x *Exchange) exactly(c *call, r *http.Request, plans *planner) func(ctx context.Context) (Usage, bool) {
	return func(ctx context.Context) (Usage, bool) {
		if !Generates(c.in.Path) || !x.prompts.countable(c.serving, time.Now()) {
			return Usage{}, false
		}
		ctx, cancel := context.WithTimeout(ctx, countTimeout)
		defer cancel()
		reply, err := x.cfg.Upstream.Send(ctx, &upstream.Request{
			Model: c.serving, Affinity: c.affinity(r), Agent: r, Aside: true, Buffer: true,
			Message: func(to upstream.Target) (*upstream.Message, error) { return plans.counting(to) },
		})
		defer reply.Free()
		defer reply.Close(0)
		prompt := countOf(reply.Buffered)
		if err == nil && reply.Status == http.StatusOK && prompt > 0 {
			c.bound = prompt
			c.most.Prompt = prompt + x.prompts.beyond(c.serving, c.tools)
			return c.most, true
		}
		if never(reply.Status, err) || err == nil && reply.Status == http.StatusOK {
			x.prompts.cannot(c.serving, time.Now())
		}
		return Usage{}, false
	}
}

// countOf returns the count in the answer of an engine, or 0 if there is none.
func countOf(answer []byte) int64 {
	count, _ := rawjson.Get(answer, "count")
	n, err := strconv.ParseInt(string(count), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// never reports whether an answer means that an engine does not count, and not that it is busy.
func never(status int, err error) bool {
	refused, ok := errors.AsType[*openai.Error](err)
	return ok && refused.Code == unknownURL || err == nil && status >= 300 && status < 500 && status != http.StatusTooManyRequests || status == http.StatusNotImplemented
}

// hasTools reports whether a request may have tools, which chat formats explain to the model.
func hasTools(body []byte) bool {
	return bytes.Contains(body, []byte(`"tools"`)) || bytes.Contains(body, []byte(`"functions"`))
}

// external marks requests whose prompts contain more than their bodies: files, pages and results
// of searches. Their tokens say nothing about the next request.
var external = [...]string{`url"`, `"file_id"`, `"source"`, `"file"`, `_search`, `"input_audio"`}

// learn notes by how much a call's prompt has exceeded its bound.
func (x *Exchange) learn(c *call) {
	more := c.meter.used.Prompt - c.bound
	if c.reserved == nil || c.bound == 0 || more <= 0 {
		return
	}
	for _, word := range external {
		if bytes.Contains(c.in.Request, []byte(word)) {
			return
		}
	}
	x.prompts.learn(c.serving, c.tools, more)
}

// counting plans the request that counts the prompt of the call. Its error is an *openai.Error.
func (p *planner) counting(to upstream.Target) (*upstream.Message, error) {
	message, err := p.message(to)
	if err != nil {
		return nil, err
	}
	form := p.of(to).form
	if to.API != upstream.APIOpenAI || to.TextOnly || form != record.Chat && form != record.Completion || p.request.Prompts != 1 {
		return nil, p.noSuchPath("its backend does not count the tokens of requests")
	}
	return &upstream.Message{Path: tokenizePath, Body: httpbody.New(openai.AppendTokenize(nil, message.Body.Bytes())), Translated: true}, nil
}

// prompts knows how many tokens the chat formats of models add to prompts. Its zero value is ready
// to use.
type prompts struct {
	mu   sync.Mutex
	more map[promptKind]int64 // the most tokens by which a prompt has exceeded its bound
	mute map[string]time.Time // until when a model's engine is not asked to count
}

// promptKind is a kind of prompt. To all of one kind a chat format adds the same text.
type promptKind struct {
	model string
	tools bool
}

const (
	// maxBeyond bounds what is learned, in tokens: no chat format adds more.
	maxBeyond = 4096
	maxModels = 1 << 12
)

// beyond returns the most tokens by which a prompt of a model has exceeded its bound so far.
func (p *prompts) beyond(model string, tools bool) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.more[promptKind{model, tools}]
}

// learn notes that a prompt has exceeded its bound by more tokens.
func (p *prompts) learn(model string, tools bool, more int64) {
	kind := promptKind{model, tools}
	p.mu.Lock()
	defer p.mu.Unlock()
	if more <= p.more[kind] || more > maxBeyond || len(p.more) >= maxModels {
		return
	}
	if p.more == nil {
		p.more = map[promptKind]int64{}
	}
	p.more[kind] = more
}

// countable reports whether a model's engine may be asked to count.
func (p *prompts) countable(model string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.mute[model])
}

// cannot keeps a model's engine from being asked for a while.
func (p *prompts) cannot(model string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mute == nil || len(p.mute) >= maxModels {
		p.mute = map[string]time.Time{}
	}
	p.mute[model] = now.Add(countPause)
}
