package server

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// callWindow is the number of seconds over which rates are computed.
	callWindow = 10
	// servedVersions bounds the number of versions that are remembered, and servedFor is how long after its last call
	// a version is shown.
	servedVersions = 16
	servedFor      = 10 * time.Minute
	// maxVersionName bounds the length of a version that a client has recorded, in bytes.
	maxVersionName = 200
)

// callCounts counts model calls as their spans arrive, so that counting them does not require reading spans.
type callCounts struct {
	mu       sync.Mutex
	since    time.Time // when counting began
	total    tokens
	seconds  [callWindow]secondCounts // by their time modulo callWindow
	versions []servedVersion
}

type tokens struct{ calls, prompt, reply int64 }

func (t *tokens) add(o tokens) {
	t.calls += o.calls
	t.prompt += o.prompt
	t.reply += o.reply
}

type secondCounts struct {
	at int64 // in seconds since 1970
	tokens
}

type servedVersion struct {
	name  string
	calls int64
	last  time.Time
}

func (c *callCounts) add(now time.Time, name string, one tokens) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.add(one)
	second := &c.seconds[now.Unix()%callWindow]
	if second.at != now.Unix() {
		*second = secondCounts{at: now.Unix()}
	}
	second.add(one)
	if name == "" || len(name) > maxVersionName {
		return
	}
	i := slices.IndexFunc(c.versions, func(v servedVersion) bool { return v.name == name })
	switch {
	case i >= 0:
	case len(c.versions) < servedVersions:
		i = len(c.versions)
		c.versions = append(c.versions, servedVersion{name: name})
	default: // it replaces the least recently called version
		i = slices.Index(c.versions, slices.MinFunc(c.versions, func(a, b servedVersion) int { return a.last.Compare(b.last) }))
		c.versions[i] = servedVersion{name: name}
	}
	c.versions[i].calls++
	c.versions[i].last = now
}

// get answers with the counts, and with rates over the last callWindow seconds, or over all that have begun if these are fewer.
func (c *callCounts) get(x *exchange) error {
	return x.answerText(http.StatusOK, string(c.document(time.Now())))
}

func (c *callCounts) document(now time.Time) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var recent tokens
	for _, s := range c.seconds {
		if now.Unix()-s.at < callWindow {
			recent.add(s.tokens)
		}
	}
	served := slices.DeleteFunc(slices.Clone(c.versions), func(v servedVersion) bool { return now.Sub(v.last) > servedFor })
	slices.SortFunc(served, func(a, b servedVersion) int { return cmp.Or(b.last.Compare(a.last), cmp.Compare(a.name, b.name)) })
	doc := rawjson.NewObject(nil)
	doc.Int("calls", c.total.calls)
	doc.Int("prompt_tokens", c.total.prompt)
	doc.Int("reply_tokens", c.total.reply)
	window := float64(max(1, min(callWindow, now.Unix()-c.since.Unix()+1))) // 1 if the clock was set back
	rates := rawjson.NewObject(nil)
	rates.Float("calls", float64(recent.calls)/window)
	rates.Float("prompt_tokens", float64(recent.prompt)/window)
	rates.Float("reply_tokens", float64(recent.reply)/window)
	doc.Raw("per_second", rates.End())
	list := []byte{'['}
	for i, v := range served {
		if i > 0 {
			list = append(list, ',')
		}
		one := rawjson.NewObject(nil)
		one.String("version", v.name)
		one.Int("calls", v.calls)
		one.Float("last_time", float64(v.last.UnixMilli())/1e3)
		list = append(list, one.End()...)
	}
	doc.Raw("versions", append(list, ']'))
	return doc.End()
}
