package configfile

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl/proxy"
)

// file reads the whole file.
func (r *reader) file(n *yaml.Node, f *File) {
	c := &f.Proxy
	given := r.object(n, "", map[string]field{
		"listen":     r.address(&f.Listen),
		"store":      r.url(&f.Store),
		"token":      r.secret(&f.Token),
		"public_url": r.url(&c.PublicURL),
		"key_secret": r.secret(&c.KeySecret),
		"models": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) {
				var m proxy.Model
				r.model(n, at, &m)
				c.Models = append(c.Models, m)
			})
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				r.failf(n, "%s: empty, there must be one at least", at)
			}
		},
		"control": func(n *yaml.Node, at string) { r.control(n, at, &c.Control) },
		"retry": r.section(map[string]field{
			"attempts": integer(r, &c.Retry.Attempts), "delay": r.duration(&c.Retry.Delay), "max_delay": r.duration(&c.Retry.MaxDelay),
		}),
		"health": r.section(map[string]field{
			"failures": integer(r, &c.Health.Failures), "rest": r.duration(&c.Health.Rest), "max_rest": r.duration(&c.Health.MaxRest),
			"probe_interval": r.duration(&c.Health.ProbeInterval), "probe_timeout": r.duration(&c.Health.ProbeTimeout),
		}),
		"pause": r.section(map[string]field{"timeout": r.duration(&c.PauseTimeout), "queue": integer(r, &c.PauseQueue)}),
		"cache": r.section(map[string]field{"size": r.size(&c.CacheBytes)}),
		"capture": r.section(map[string]field{
			"mode": word(r, &c.Capture, map[string]proxy.CaptureMode{
				string(proxy.CaptureRequire): proxy.CaptureRequire, string(proxy.CaptureBestEffort): proxy.CaptureBestEffort, string(proxy.CaptureOff): proxy.CaptureOff,
			}),
			"spool_dir": r.text(&c.SpoolDir), "spool_size": r.size(&c.SpoolBytes),
			"memory": r.size(&c.CaptureBytes), "reply_size": r.size(&c.MaxReplyBytes), "store_timeout": r.duration(&c.StoreTimeout),
			"store_retry": r.duration(&c.StoreRetry), "write_delay": r.duration(&c.WriteDelay),
		}),
		"request_size":  r.size(&c.MaxRequestBytes),
		"queue_timeout": r.duration(&c.QueueTimeout),
		"idle_timeout":  r.duration(&c.IdleTimeout),
		"log":           r.section(map[string]field{"calls": r.boolean(&c.LogCalls), "contents": r.boolean(&c.LogContents)}),
	})
	if n.Kind == yaml.MappingNode && given["models"] == nil {
		r.failf(n, "models: missing, there must be one at least")
	}
}

// section reads a mapping of its own.
func (r *reader) section(fields map[string]field) field {
	return func(n *yaml.Node, at string) { r.object(n, at, fields) }
}

func (r *reader) model(n *yaml.Node, at string, m *proxy.Model) {
	before := len(r.mistakes)
	given := r.object(n, at, map[string]field{
		"name":          r.text(&m.Name),
		"base_url":      r.url(&m.BaseURL),
		"backend_model": r.text(&m.BackendModel),
		"api_key":       r.secret(&m.APIKey),
		"version":       r.text(&m.Version),
		"text_only":     r.boolean(&m.TextOnly),
		"api": word(r, &m.API, map[string]proxy.API{
			"openai": proxy.APIOpenAI, string(proxy.APIAzure): proxy.APIAzure, string(proxy.APIAnthropic): proxy.APIAnthropic,
		}),
		"api_version": r.text(&m.APIVersion),
		"chat_only":   r.boolean(&m.ChatOnly),
		"replay":      r.boolean(&m.Replay),
		"limits": r.section(map[string]field{
			"in_flight":           integer(r, &m.Limits.InFlight),
			"requests_per_minute": integer(r, &m.Limits.RequestsPerMinute),
			"tokens_per_minute":   integer(r, &m.Limits.TokensPerMinute),
		}),
		"health_url": r.text(&m.HealthURL),
		"pause_url":  r.text(&m.PauseURL),
		"resume_url": r.text(&m.ResumeURL),
	})
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, key := range []string{"name", "base_url"} {
		if given[key] == nil {
			r.failf(n, "%s.%s: missing", at, key)
		}
	}
	if len(r.mistakes) == before {
		r.check(n, m.Validate())
	}
}

func (r *reader) control(n *yaml.Node, at string, c *proxy.Control) {
	before := len(r.mistakes)
	var spent time.Duration
	r.object(n, at, map[string]field{
		"force":   r.json(&c.Force),
		"default": r.json(&c.Default),
		"forbid": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) {
				var name string
				r.text(&name)(n, at)
				c.Forbid = append(c.Forbid, name)
			})
		},
		"budget": r.section(map[string]field{
			"calls": integer(r, &c.Budget.Calls), "tokens": integer(r, &c.Budget.Tokens), "time": r.duration(&spent),
			"over": word(r, &c.Budget.Over, map[string]proxy.OverBudget{"error": proxy.OverError, "length": proxy.OverLength}),
		}),
	})
	c.Budget.Seconds = spent.Seconds()
	if len(r.mistakes) == before {
		r.check(n, c.Validate())
	}
}

// url reads an absolute HTTP URL. A password in it would be a secret in the file.
func (r *reader) url(to *string) field {
	return func(n *yaml.Node, at string) {
		u, err := url.Parse(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode, err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			r.failf(n, "%s: must be an http or https URL such as http://127.0.0.1:8000/v1", at)
		case u.User != nil:
			r.failf(n, "%s: it holds a user or a password, which have no place in this file; use api_key or token", at)
		default:
			*to = n.Value
		}
	}
}

// address reads host:port.
func (r *reader) address(to *string) field {
	return func(n *yaml.Node, at string) {
		_, port, err := net.SplitHostPort(n.Value)
		if _, wrong := strconv.ParseUint(port, 10, 16); n.Kind != yaml.ScalarNode || err != nil || wrong != nil {
			r.failf(n, "%s: got %q, must be HOST:PORT such as 127.0.0.1:4748", at, n.Value)
			return
		}
		*to = n.Value
	}
}

// json reads a mapping as a JSON object.
func (r *reader) json(to *jsontext.Value) field {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.MappingNode {
			r.failf(n, "%s: got %s, must be a mapping", at, describe(n))
			return
		}
		*to = r.appendJSON(nil, n, at)
	}
}

// appendJSON appends a node as JSON. Numbers stay as they are spelled.
func (r *reader) appendJSON(dst []byte, n *yaml.Node, at string) []byte {
	n = r.plain(n)
	switch {
	case n.Kind == yaml.MappingNode:
		dst = append(dst, '{')
		seen := make(map[string]bool)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if seen[key.Value] {
				r.failf(key, "%s.%s: given twice", at, key.Value)
			}
			seen[key.Value] = true
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendText(dst, key.Value)
			dst = append(dst, ':')
			dst = r.appendJSON(dst, n.Content[i+1], at+"."+key.Value)
		}
		return append(dst, '}')
	case n.Kind == yaml.SequenceNode:
		dst = append(dst, '[')
		for i, item := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.appendJSON(dst, item, at+"["+strconv.Itoa(i)+"]")
		}
		return append(dst, ']')
	case n.Tag == "!!null":
		return append(dst, "null"...)
	case n.Tag == "!!bool":
		return append(dst, strings.ToLower(n.Value)...)
	case n.Tag == "!!int" || n.Tag == "!!float":
		if number := jsontext.Value(n.Value); number.IsValid() && number.Kind() == '0' {
			return append(dst, n.Value...)
		}
		r.failf(n, "%s: got %s, must be spelled as JSON has numbers, such as 12 or 0.5", at, n.Value)
		return append(dst, '0')
	default:
		return appendText(dst, n.Value)
	}
}

func appendText(dst []byte, s string) []byte {
	// YAML is UTF-8, so that there is nothing for the error to report.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
