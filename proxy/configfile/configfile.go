// Package configfile reads the YAML file that configures an LLM proxy. It is strict:
// unknown keys, values of the wrong type and plain secrets are mistakes. All mistakes
// are reported at once, each with its line.
//
//	file, err := configfile.Parse("proxy.yaml", data)
//	p, err := proxy.New(file.Proxy)
//
// The package must not know where the file comes from or when it is read again.
package configfile

import (
	"reflect"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy"
)

// File holds the content of a configuration file. What the file leaves out is zero,
// except Proxy.LogCalls, which is then true.
type File struct {
	Listen string // host:port
	Store  string // base URL of the store that takes the records
	Token  string // env:NAME, for the store and the admin routes
	Proxy  proxy.Config
}

// Frozen returns the keys in which next differs from f and that a running proxy cannot
// change: all but models and control.
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
		{"forward_paths", slices.Equal(a.ForwardPaths, b.ForwardPaths)},
		{"request_size", a.MaxRequestBytes == b.MaxRequestBytes},
		{"queue_timeout", a.QueueTimeout == b.QueueTimeout},
		{"idle_timeout", a.IdleTimeout == b.IdleTimeout},
		{"sessions", reflect.DeepEqual(a.Sessions, b.Sessions)},
		{"log", a.LogCalls == b.LogCalls && a.LogContents == b.LogContents},
	} {
		if !part.same {
			changed = append(changed, part.key)
		}
	}
	return changed
}

// Error holds the mistakes of a file in the order of its lines. It matches
// agl.ErrInvalid.
type Error = yamlfile.Error

// Mistake is one mistake in a file.
type Mistake = yamlfile.Mistake

// Parse reads a file. The name is for its errors, which are of type *Error.
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

// Schema returns the JSON Schema of the file.
func Schema() jsontext.Value {
	return yamlfile.Schema("agl proxy", "What `agl proxy --config FILE` reads.", declare(&File{Proxy: proxy.Config{LogCalls: true}}))
}
