package proxy

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/maypok86/otter/v2"

	"github.com/agl-go/agl"
)

// cache keeps whole replies by what was asked.
type cache struct {
	entries *otter.Cache[cacheKey, *cached]
	largest int64 // bytes of a reply that is kept
}

// cacheKey is the digest of a request.
type cacheKey [sha256.Size]byte

// cached is a reply as the backend sent it.
type cached struct {
	backend *backend
	header  http.Header
	body    []byte
}

// entryOverhead is about what an entry takes besides its body.
const entryOverhead = 2 << 10

// newCache makes a cache of so many bytes; 0 makes none.
func newCache(size int64) (*cache, error) {
	if size == 0 {
		return nil, nil
	}
	entries, err := otter.New(&otter.Options[cacheKey, *cached]{
		MaximumWeight: uint64(size),
		Weigher:       func(_ cacheKey, c *cached) uint32 { return uint32(len(c.body) + entryOverhead) },
		Executor:      func(task func()) { task() }, // no goroutines that nobody waits for
	})
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "CacheBytes: got %d: %w", size, err)
	}
	const share = 8 // one reply is not to push out all others
	return &cache{entries: entries, largest: min(size/share, 1<<30)}, nil
}

// close ends what the cache runs.
func (c *cache) close() {
	if c != nil {
		c.entries.StopAllGoroutines()
	}
}

// bytes is about what the cache holds.
func (c *cache) bytes() uint64 {
	if c == nil {
		return 0
	}
	return c.entries.WeightedSize()
}

// cacheKey returns the key of the call: of the request as the first replica
// would get it, its body in canonical form, and of the model's version, so that
// nothing outlives the weights that wrote it. Calls that are no POSTs of JSON
// have none, and neither have those that ask for none by Cache-Control.
func (d *dispatcher) cacheKey() (cacheKey, bool) {
	b := d.c.group.replicas[0]
	req, f := d.build(b)
	if f != nil || req.Method != http.MethodPost || req.Header.Get("Cache-Control") == "no-store" {
		return cacheKey{}, false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return cacheKey{}, false
	}
	// Numbers stay as they are spelled: seeds may be longer than a float's digits.
	canonical := jsontext.Value(body)
	err = canonical.Compact(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false))
	if err != nil {
		return cacheKey{}, false
	}
	digest := sha256.New()
	for _, part := range []string{
		req.URL.RequestURI(), b.Name, b.Version, req.Header.Get("Authorization"), req.Header.Get("Api-Key"), req.Header.Get("X-Api-Key"),
		req.Header.Get("Anthropic-Version"), req.Header.Get("Anthropic-Beta"),
	} {
		_, _ = io.WriteString(digest, part+"\x00") // a digest takes everything
	}
	_, _ = digest.Write(canonical)
	return cacheKey(digest.Sum(nil)), true
}

// hit returns the reply that is kept for a key, nil if there is none.
func (d *dispatcher) hit(key cacheKey) *http.Response {
	found, ok := d.p.cache.entries.GetIfPresent(key)
	if !ok {
		return nil
	}
	if _, f := d.build(found.backend); f != nil {
		return nil
	}
	d.c.backend, d.c.versioned, d.c.cached = found.backend, found.backend.Version, true
	header := found.header.Clone()
	header.Set(HeaderCache, "hit")
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: int64(len(found.body)), Body: io.NopCloser(bytes.NewReader(found.body)),
	}
}

// keeping is a reply's body that is put into the cache when it has come whole.
type keeping struct {
	io.ReadCloser

	cache  *cache
	key    cacheKey
	entry  cached
	length int64 // of the whole body; negative when it is not known
	ended  bool  // it is in the cache, or too long for it
}

func (k *keeping) Read(b []byte) (int, error) {
	n, err := k.ReadCloser.Read(b)
	switch {
	case k.ended:
	case int64(len(k.entry.body)+n) > k.cache.largest:
		k.ended, k.entry.body = true, nil
	default:
		k.entry.body = append(k.entry.body, b[:n]...)
		// Who knows the length reads no further.
		if err == io.EOF || int64(len(k.entry.body)) == k.length {
			k.ended = true
			k.cache.entries.Set(k.key, &k.entry)
		}
	}
	return n, err
}

// keep has a reply put into the cache as it passes.
func (d *dispatcher) keep(key cacheKey, res *http.Response) {
	if res.StatusCode != http.StatusOK {
		return
	}
	res.Body = &keeping{ReadCloser: res.Body, cache: d.p.cache, key: key, length: res.ContentLength, entry: cached{backend: d.c.backend, header: res.Header.Clone()}}
}
