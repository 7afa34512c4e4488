// Package configfile reads the YAML file that configures an LLM proxy. It is
// strict: a key that it does not know, a value of the wrong type and a secret
// that stands in the file are mistakes, and all mistakes are reported at once,
// each with its line. It knows the proxy's configuration and nothing of where
// the file comes from or when it is read again.
package configfile

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy"
)

// File is what a configuration file says. What it does not say is zero, but for
// Proxy.LogCalls, which is set unless it says false.
type File struct {
	Listen string // host:port
	Store  string // base URL of the store that takes the records
	Token  string // env:NAME, for the store and the admin routes
	Proxy  proxy.Config
}

// Frozen returns the keys by which next differs from f and which a running proxy
// cannot change: all but models and control.
func (f *File) Frozen(next *File) []string {
	a, b := &f.Proxy, &next.Proxy
	var changed []string
	for _, part := range [...]struct {
		key  string
		same bool
	}{
		{"listen", f.Listen == next.Listen},
		{"store", f.Store == next.Store},
		{"token", f.Token == next.Token},
		{"public_url", a.PublicURL == b.PublicURL},
		{"key_secret", a.KeySecret == b.KeySecret},
		{"retry", a.Retry == b.Retry},
		{"health", a.Health == b.Health},
		{"pause", a.PauseTimeout == b.PauseTimeout && a.PauseQueue == b.PauseQueue},
		{"cache", a.CacheBytes == b.CacheBytes},
		{"capture", a.Capture == b.Capture && a.SpoolDir == b.SpoolDir && a.SpoolBytes == b.SpoolBytes && a.CaptureBytes == b.CaptureBytes &&
			a.MaxReplyBytes == b.MaxReplyBytes && a.StoreTimeout == b.StoreTimeout && a.StoreRetry == b.StoreRetry && a.WriteDelay == b.WriteDelay},
		{"request_size", a.MaxRequestBytes == b.MaxRequestBytes},
		{"queue_timeout", a.QueueTimeout == b.QueueTimeout},
		{"idle_timeout", a.IdleTimeout == b.IdleTimeout},
		{"log", a.LogCalls == b.LogCalls && a.LogContents == b.LogContents},
	} {
		if !part.same {
			changed = append(changed, part.key)
		}
	}
	return changed
}

// Error is what is wrong in a file, in the order of its lines. It matches
// agl.ErrInvalid.
type Error = yamlfile.Error

// Mistake is one thing that is wrong in a file.
type Mistake = yamlfile.Mistake

// Parse reads a file. The name is only for its errors, which are *Error.
func Parse(name string, data []byte) (*File, error) {
	file := &File{Proxy: proxy.Config{LogCalls: true}}
	document := yamlfile.Document{Name: name, Data: data, Empty: "it must at least have models"}
	if err := document.Read(declare(file)); err != nil {
		return nil, err
	}
	if err := file.Proxy.Validate(); err != nil {
		return nil, &Error{Name: name, Mistakes: []Mistake{{Message: err.Error()}}}
	}
	return file, nil
}

// Schema returns the JSON Schema of a file.
func Schema() jsontext.Value {
	return yamlfile.Schema("agl proxy", "What `agl proxy --config FILE` reads.", declare(&File{Proxy: proxy.Config{LogCalls: true}}))
}
