package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/panics"
	"github.com/agl-go/agl/proxy/openai"
)

// Send sends a request to a backend of its model, repeats it as Config.Retry says, and
// returns the reply. The reply is never nil and must be closed; with an error it says
// how far the call got. The error is an *openai.Error, which answers the agent, or the
// cause of ctx when that has ended.
func (p *Pool) Send(ctx context.Context, req *Request) (*Reply, error) {
	r := &Reply{pool: p, model: req.Model}
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	r.detach = context.AfterFunc(ctx, func() { r.end(context.Cause(ctx)) })
	if ctx.Err() != nil {
		r.cancel(context.Cause(ctx))
	}
	key, cacheable := p.cacheKey(ctx, req)
	if cacheable && r.fromCache(key) {
		return r, nil
	}
	for {
		tries := r.Tries
		res, err := r.try(req) //nolint:bodyclose // receive keeps it for Close, or it is discarded
		r.Lost = r.Tries > tries && MayHaveArrived(err)
		if refused, ok := errors.AsType[*openai.Error](err); ok {
			return r, refused
		}
		if err == nil && !req.Aside && res.StatusCode/100 == 3 {
			discard(res.Body)
			return r, r.redirected(res)
		}
		delay, again := r.repeat(req, res, err)
		if err == nil && !again {
			if err = r.receive(req, res); err == nil {
				if cacheable {
					r.addToCache(key)
				}
				return r, nil
			}
			r.Lost = true
			delay, again = r.repeat(req, nil, err)
		}
		if again && r.Lost && req.Again != nil {
			again = req.Again(r.ctx) == nil //nolint:contextcheck // it is derived from ctx
		}
		if !again {
			return r, r.failure(err)
		}
		r.Lost = false // Again has accounted for it
		p.cfg.Logger.DebugContext(ctx, "trying again", "model", req.Model, "backend", r.Backend, "tries", r.Tries, "delay", delay, "error", err)
		if err == nil {
			discard(res.Body)
		}
		r.leave(0)
		r.restart()
		if err := backoff.Sleep(r.ctx, delay); err != nil { //nolint:contextcheck // it is derived from ctx
			return r, r.cause(err)
		}
	}
}

// MayHaveArrived reports whether a request that ended with err may have reached its backend.
func MayHaveArrived(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return err != nil && !untrusted
}

// try sends the request to one backend. Its error is an *openai.Error when the proxy
// itself sent nothing: limits, pause, no backend up, or no translation.
func (r *Reply) try(req *Request) (*http.Response, error) {
	if err := r.enter(req); err != nil {
		return nil, r.cause(err)
	}
	b := r.backend
	r.Target, r.Backend = Target{&b.Model, b.Replay || b.state.unstreamed.Load()}, b.url()
	message, err := req.Message(r.Target)
	if err != nil {
		return nil, err
	}
	r.translated, r.streams = message.Translated, message.Streams
	if r.idle == nil {
		r.idle = newIdleTimeout(r.pool.cfg.IdleTimeout, func() { r.cancel(errIdle) })
	} else {
		r.idle.alive()
	}
	res, err := r.roundTrip(req, message)
	if err == nil && message.StreamsIDs && refusesIDs(res) {
		res, err = r.askWhole(req, res)
	}
	if _, ok := errors.AsType[*openai.Error](err); !ok && !req.Aside {
		r.judge(res, err)
	}
	return res, err
}

func (r *Reply) roundTrip(req *Request, m *Message) (*http.Response, error) {
	key, err := r.pool.keyOf(r.backend)
	if err != nil {
		return nil, openai.NewError(http.StatusInternalServerError, openai.APIError, "no_api_key", err.Error())
	}
	r.Sent = time.Now()
	r.Tries++
	r.backend.state.tries.Add(1)
	res, err := roundTrip(r.pool.cfg.Transport, r.backend.forward(r.ctx, req, m, key))
	if err != nil {
		return nil, err
	}
	if res.StatusCode < http.StatusOK || res.StatusCode > 599 { // 101, or none of HTTP's (RFC 9110, 15)
		_ = res.Body.Close() // after 101 it is the connection, whose end cannot be waited for
		return nil, statusError(res.StatusCode)
	}
	r.backend.redact(res, key)
	return res, nil
}

// roundTrip sends a request, and makes an error of a panic: the transport may be of the program that embeds the proxy.
func roundTrip(transport http.RoundTripper, req *http.Request) (res *http.Response, err error) {
	err = panics.Catch(func() (err error) {
		res, err = transport.RoundTrip(req) //nolint:bodyclose // the caller does
		return err
	})
	return res, panics.Located(err)
}

// enter waits until the proxy is not paused and admits the call to a backend. It uses
// the model list after the wait, because the list may have been replaced meanwhile.
func (r *Reply) enter(req *Request) error {
	p := r.pool
	for {
		if err := p.gate.wait(r.ctx); err != nil {
			return err
		}
		t := p.models.Load()
		g, err := t.group(req.Model)
		if err != nil {
			return err
		}
		if err := r.choose(g, req); err != nil {
			return err
		}
		if r.passage = p.gate.enter(r.cancel); r.passage != nil && p.models.Load() == t {
			return nil
		}
		r.leave(0) // the proxy was paused or its models were replaced while the call waited
	}
}

// choose chooses a replica and waits for its limits.
func (r *Reply) choose(g *group, req *Request) error {
	for {
		now := time.Now()
		b := g.pick(req.Affinity, r.tried, now)
		if b == nil && len(r.tried) > 0 {
			b = g.pick(req.Affinity, nil, now)
		}
		if b == nil {
			return g.noneUp(req.Model, now)
		}
		b.state.load.Add(1)
		if err := b.state.limits.acquire(r.ctx, r.pool.cfg.QueueTimeout); err != nil {
			b.state.load.Add(-1)
			return err
		}
		r.backend = b
		if b.state.breaker.admit(time.Now()) {
			r.admitted, r.verdict = true, neutral
			return nil
		}
		r.leave(0) // it went down while the call waited
	}
}

// judge tells the circuit breaker whether a reply has begun. leave reports the final
// verdict.
func (r *Reply) judge(res *http.Response, err error) {
	switch v := r.verdictOf(err); {
	case v != worked:
		r.noteFailure(v, err)
		r.report(v)
	case res.StatusCode >= 500:
		r.noteFailure(failed, errors.New("HTTP "+strconv.Itoa(res.StatusCode)))
		r.report(failed)
	default:
		r.verdict = answered
		r.backend.state.breaker.report(answered, time.Now(), &r.pool.cfg.Health)
	}
}

// maxRefusal is how much of an error is read to find out what was refused.
const maxRefusal = 4 << 10

// noIDsInStreams is part of SGLang's error for a stream with token ids. Alone it proves
// nothing, because some backends repeat the request in their errors.
const noIDsInStreams = "return_token_ids is not supported"

// refusesIDs reports whether a backend seems to have refused a stream because it asks for
// token ids. The body can still be read from its start.
func refusesIDs(res *http.Response) bool {
	if res.StatusCode != http.StatusBadRequest {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	// A body that cannot be read fails again when it is received.
	return err == nil && bytes.Contains(head, []byte(noIDsInStreams))
}

// askWhole asks a backend that has refused a stream for the whole reply. If it sends
// one, its streams are replayed from then on, as with Model.Replay. If it refuses that,
// too, the agent gets the first refusal.
func (r *Reply) askWhole(req *Request, refused *http.Response) (*http.Response, error) {
	streaming := r.Target
	r.Target.Unstreamed = true
	message, err := req.Message(r.Target)
	var res *http.Response
	if err == nil {
		r.streams = message.Streams
		res, err = r.roundTrip(req, message)
	}
	if err == nil && res.StatusCode == http.StatusBadRequest {
		r.Target = streaming
		discard(res.Body)
		return refused, nil
	}
	discard(refused.Body)
	if err == nil && res.StatusCode < 300 {
		r.unstream(slog.LevelInfo, "refuses token ids in streams")
	}
	return res, err
}

// LacksIDs notes that a stream did not have the ids of all its tokens: later replies of its backend are requested whole and replayed as
// streams, as with Model.Replay. Call it before Close, after which it does nothing.
func (r *Reply) LacksIDs() {
	if r.backend != nil {
		r.unstream(slog.LevelWarn, "leaves token ids out of its streams, and calls without all their ids cannot be trained on")
	}
}

// WarnEncoded logs, once for each backend, that it encodes its replies. Call it before Close, after which it does nothing.
func (r *Reply) WarnEncoded() {
	if r.backend != nil && !r.backend.state.encoded.Swap(true) {
		r.pool.cfg.Logger.WarnContext(r.ctx, "the backend encodes replies although it was asked not to: they can be neither recorded nor translated; switch its compression off",
			"model", r.model, "backend", r.Backend, "encoding", r.Encoding())
	}
}

func (r *Reply) unstream(level slog.Level, why string) {
	if !r.backend.state.unstreamed.Swap(true) {
		r.pool.cfg.Logger.Log(r.ctx, level, "the backend "+why+": its replies are requested whole and replayed as streams", "model", r.model, "backend", r.Backend)
	}
}

// repeat decides whether a request is sent again, and after which delay.
func (r *Reply) repeat(req *Request, res *http.Response, err error) (time.Duration, bool) {
	retry := &r.pool.cfg.Retry
	if req.Aside || r.backend == nil || r.Tries == 0 || r.Tries >= retry.Attempts || r.ctx.Err() != nil {
		return 0, false
	}
	if err == nil && res.StatusCode == http.StatusNotFound && r.replaced(req) {
		return 0, true
	}
	if err == nil && !repeatable(res) {
		return 0, false
	}
	now := time.Now()
	if !slices.Contains(r.tried, r.backend) {
		r.tried = append(r.tried, r.backend)
	}
	delay := retry.delay(r.Tries)
	if err != nil || r.otherUp(req, now) {
		return delay, true
	}
	asked := backoff.RetryAfter(res.Header, now)
	return max(delay, asked), asked <= retry.MaxDelay
}

// replaced reports whether the backend's model was replaced while the request was on its way, as by the weights after a step: the
// backend may no longer have it.
func (r *Reply) replaced(req *Request) bool {
	g, err := r.pool.models.Load().group(req.Model)
	return err == nil && !slices.ContainsFunc(g.replicas, func(b *backend) bool {
		return b.BaseURL == r.backend.BaseURL && b.BackendModel == r.backend.BackendModel
	})
}

// otherUp reports whether there is a replica that has not failed this call.
func (r *Reply) otherUp(req *Request, now time.Time) bool {
	g, err := r.pool.models.Load().group(req.Model)
	return err == nil && g.pick(req.Affinity, r.tried, now) != nil
}

// receive fills r with the head of a reply, and for Request.Buffer with its body.
func (r *Reply) receive(req *Request, res *http.Response) error {
	r.Status, r.Header, r.Length, r.body = res.StatusCode, res.Header, res.ContentLength, res.Body
	r.FirstByte = time.Now()
	r.ResumeIdle()
	if r.streams && !r.Stream() && r.Status < 300 && r.Encoding() == "" {
		body, isStream := PeekStream(r.body)
		if r.body = body; isStream {
			header := http.Header{}
			maps.Copy(header, r.Header)
			header.Set("Content-Type", eventStream)
			r.Header = header
		}
	}
	stream := r.Stream() && (!r.translated || r.Status < 300) // an error is translated whole
	if stream || r.Encoding() != "" || !req.Buffer && !r.translated && !r.hasType("application/json") {
		return nil
	}
	r.buffer, _ = r.pool.buffers.Get().(*[]byte)
	var err error
	r.Buffered, err = ReadBody(r, *r.buffer, r.Length, r.pool.cfg.MaxReplyBytes)
	if errors.Is(err, ErrTooLong) {
		r.More, err = true, nil
	}
	if r.Buffered == nil {
		r.Buffered = []byte{}
	}
	return err
}

// restart discards the part of a reply that was received before it broke off.
func (r *Reply) restart() {
	r.closeBody()
	r.Free()
	r.Status, r.Header = 0, nil
	r.FirstByte, r.LastByte = time.Time{}, time.Time{}
}

// discard reads the rest of a short body, so that its connection can serve another
// request. One that does not come soon is not waited for.
func discard(body io.ReadCloser) {
	const most, soon = 64 << 10, 100 * time.Millisecond
	late := time.AfterFunc(soon, func() { _ = body.Close() })
	defer body.Close()
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, most) // an error does not matter
}
