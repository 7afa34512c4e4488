package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// cacheKey returns the key of a request: the digest of what the first replica would
// receive, with the body in canonical form, and of the model's version, so that a
// cached reply does not outlive the weights that generated it. There is no key for a
// request that is not a POST of JSON, or has Cache-Control: no-store.
func (p *Pool) cacheKey(ctx context.Context, req *Request) (cacheKey, bool) {
	if p.cache == nil || req.Agent.Method != http.MethodPost || req.Agent.Header.Get("Cache-Control") == "no-store" {
		return cacheKey{}, false
	}
	g, err := p.models.Load().group(req.Model)
	if err != nil {
		return cacheKey{}, false
	}
	b := g.replicas[0]
	message, err := req.Message(Target{&b.Model, b.Replay || b.state.unstreamed.Load()})
	if err != nil {
		return cacheKey{}, false
	}
	key, err := p.keyOf(b)
	if err != nil {
		return cacheKey{}, false
	}
	// Numbers keep their spelling: a seed may have more digits than a float64.
	canonical := jsontext.Value(message.Body.Bytes())
	if err := canonical.Compact(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false)); err != nil {
		return cacheKey{}, false
	}
	sent := b.forward(ctx, req, message, key)
	digest := sha256.New()
	for _, part := range []string{
		sent.URL.RequestURI(), b.Name, b.Version, sent.Header.Get("Authorization"), sent.Header.Get("Api-Key"), sent.Header.Get("X-Api-Key"),
		sent.Header.Get("Anthropic-Version"), sent.Header.Get("Anthropic-Beta"),
	} {
		_, _ = io.WriteString(digest, part+"\x00") // a digest never fails
	}
	_, _ = digest.Write(canonical)
	return cacheKey(digest.Sum(nil)), true
}

// fromCache fills r with the cached reply for a key, and reports whether there is one.
func (r *Reply) fromCache(key cacheKey) bool {
	found := r.pool.cache.get(key)
	if found == nil {
		return false
	}
	r.Target, r.Backend, r.VersionEnd, r.Cached = found.target, found.backend.url(), found.backend.Version, true
	r.Status, r.Header, r.Length = http.StatusOK, found.header.Clone(), int64(len(found.body))
	r.Header.Set(HeaderCache, "hit")
	r.body = io.NopCloser(bytes.NewReader(nil))
	if r.Stream() || r.Encoding() != "" {
		r.body = io.NopCloser(bytes.NewReader(found.body))
	} else {
		r.Buffered = found.body
	}
	return true
}

// addToCache puts a reply into the cache: now if it has been received, otherwise when
// its body has been read to the end.
func (r *Reply) addToCache(key cacheKey) {
	if r.Status != http.StatusOK || r.More {
		return
	}
	entry := &cachedReply{key: key, backend: r.backend, target: r.Target, header: r.Header.Clone()}
	limit := r.pool.cache.limit / maxCachedShare
	if r.Buffered != nil {
		if int64(len(r.Buffered)) <= limit && r.answers(r.Buffered) {
			entry.body = bytes.Clone(r.Buffered)
			r.pool.cache.put(entry)
		}
		return
	}
	r.body = &cachingBody{ReadCloser: r.body, entry: entry, limit: limit, length: r.Length, complete: func() {
		if r.answers(entry.body) {
			r.pool.cache.put(entry)
		}
	}}
}

// answers reports whether the whole body of a reply with status 200 is an answer, and not an error, or nothing. What is neither JSON nor
// a stream is one, unless it is a page.
func (r *Reply) answers(body []byte) bool {
	switch {
	case len(body) == 0 || r.hasType("text/html"):
		return false
	case r.Encoding() != "":
		return true
	case r.Stream():
		return openai.CompleteStream(body)
	case !r.hasType("application/json"):
		return true
	}
	fault, _ := rawjson.Get(body, "error")
	return !openai.Failed(fault) && jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
