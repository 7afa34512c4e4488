package upstream

import (
	"container/list"
	"crypto/sha256"
	"io"
	"net/http"
	"sync"
)

// replyCache is an LRU cache of complete replies by request, limited in bytes. A nil
// replyCache is empty.
type replyCache struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	replies map[cacheKey]*list.Element
	order   list.List // of *cachedReply, the most recently used in front
}

// cacheKey is the digest of a request.
type cacheKey [sha256.Size]byte

// cachedReply is a reply as the backend sent it.
type cachedReply struct {
	key     cacheKey
	backend *backend
	target  Target
	header  http.Header
	body    []byte
}

const (
	// cachedOverhead is the estimated memory of a reply without its body.
	cachedOverhead = 2 << 10
	// maxCachedShare: one reply may take at most 1/maxCachedShare of the cache.
	maxCachedShare = 8
)

func (c *cachedReply) size() int64 { return int64(len(c.body)) + cachedOverhead }

// newReplyCache returns a cache of limit bytes, or nil if limit is 0.
func newReplyCache(limit int64) *replyCache {
	if limit == 0 {
		return nil
	}
	return &replyCache{limit: limit, replies: make(map[cacheKey]*list.Element)}
}

func (c *replyCache) size() int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *replyCache) get(key cacheKey) *cachedReply {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := c.replies[key]
	if place == nil {
		return nil
	}
	c.order.MoveToFront(place)
	found, _ := place.Value.(*cachedReply)
	return found
}

func (c *replyCache) put(r *cachedReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if place := c.replies[r.key]; place != nil {
		c.drop(place)
	}
	c.replies[r.key] = c.order.PushFront(r)
	for c.bytes += r.size(); c.bytes > c.limit; {
		c.drop(c.order.Back())
	}
}

func (c *replyCache) drop(place *list.Element) {
	r, _ := c.order.Remove(place).(*cachedReply)
	delete(c.replies, r.key)
	c.bytes -= r.size()
}

// HeaderCache says "hit" on a reply from the cache.
const HeaderCache = "Agl-Cache"

// cachingBody copies a body while it is read and calls complete at its end.
type cachingBody struct {
	io.ReadCloser

	entry         *cachedReply
	limit, length int64 // length is negative when it is not known
	complete      func()
	over          bool // no more is copied: complete was called, or never will be
}

func (k *cachingBody) Read(to []byte) (int, error) {
	n, err := k.ReadCloser.Read(to)
	if k.over {
		return n, err
	}
	k.entry.body = append(k.entry.body, to[:n]...)
	switch size := int64(len(k.entry.body)); {
	case size > k.limit:
		k.over, k.entry.body = true, nil
	case err == io.EOF || size == k.length: // a body with Content-Length is read no further
		k.over = true
		k.complete()
	case err != nil:
		k.over = true
	}
	return n, err
}
