//go:build unix

package attack

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// TestAttack attacks every server.
func TestAttack(t *testing.T) {
	t.Parallel()
	for _, s := range targets(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.T = t
			s.alive("at the start")
			for _, attack := range []struct {
				name string
				run  func(*target)
			}{
				{"malformed HTTP", malformed}, {"bodies", bodies}, {"encodings", encodings}, {"paths", paths}, {"queries", queries},
				{"credentials", credentials}, {"methods", methods}, {"headers", headers}, {"half-sent bodies", halfSent}, {"slow headers", slowHeaders},
			} {
				attack.run(s)
				s.alive("after " + attack.name)
			}
		})
	}
}

// crew sends requests at once, a few at a time.
type crew struct {
	at    sync.WaitGroup
	limit chan struct{}
}

func newCrew(size int) *crew { return &crew{limit: make(chan struct{}, size)} }

func (c *crew) do(f func()) {
	c.limit <- struct{}{}
	c.at.Go(func() {
		defer func() { <-c.limit }()
		f()
	})
}

// refused checks that an answer blames the client: a 4xx, or a closed connection where HTTP
// itself is broken. Some requests may be served; none may be a fault of the server.
func (t *target) refused(what string, got answer, err error, served bool) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("%s: %s: %v", t.name, what, err)
	case got.status >= 400 && got.status < 500:
	case served && got.status < 400:
	case got.status == http.StatusServiceUnavailable: // for now, because others hold the memory
	default:
		t.Errorf("%s: %s: got %d %.200q, want a 4xx", t.name, what, got.status, got.body)
	}
}

// malformed sends invalid HTTP.
func malformed(t *target) {
	host := "Host: " + t.address + "\r\n" + t.header
	path := t.posts[0]
	c := newCrew(8)
	for what, raw := range map[string]string{
		"noise":                     "\x00\x01\x02\xff\xfe\r\n\r\n",
		"TLS":                       "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("a", 100) + "\r\n\r\n",
		"no version":                "GET /\r\n\r\n",
		"another protocol":          "GET / SIP/2.0\r\n\r\n",
		"HTTP/2 preface":            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"no host":                   "GET / HTTP/1.1\r\n\r\n",
		"two hosts":                 "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"a control character":       "GET /\x01 HTTP/1.1\r\n" + host + "\r\n",
		"a header of a megabyte":    "GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"100,000 headers":           "GET / HTTP/1.1\r\n" + host + strings.Repeat("X: a\r\n", 100_000) + "\r\n",
		"a URL of a megabyte":       "GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n" + host + "\r\n",
		"a header without a name":   "GET / HTTP/1.1\r\n" + host + ": a\r\n\r\n",
		"a space before a colon":    "GET / HTTP/1.1\r\n" + host + "X : a\r\n\r\n",
		"a folded header":           "GET / HTTP/1.1\r\n" + host + "X: a\r\n b\x00\r\n\r\n",
		"a negative length":         "POST " + path + " HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n",
		"a length beyond 64 bits":   "POST " + path + " HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n",
		"two lengths":               "POST " + path + " HTTP/1.1\r\n" + host + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"a huge length":             "POST " + path + " HTTP/1.1\r\n" + host + "Content-Type: application/json\r\nContent-Length: 9223372036854775807\r\n\r\n{",
		"a wrong chunk":             "POST " + path + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"a chunk beyond 64 bits":    "POST " + path + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"chunk extensions":          "POST " + path + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 1<<20) + "\r\n{\r\n0\r\n\r\n",
		"an unknown coding":         "POST " + path + " HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n{}",
		"an unknown expectation":    "POST " + path + " HTTP/1.1\r\n" + host + "Expect: everything\r\nContent-Length: 2\r\n\r\n{}",
		"a method that nobody has":  "BREW " + path + " HTTP/1.1\r\n" + host + "\r\n",
		"CONNECT":                   "CONNECT 169.254.169.254:80 HTTP/1.1\r\n" + host + "\r\n",
		"TRACE":                     "TRACE / HTTP/1.1\r\n" + host + "\r\n",
		"another server's URL":      "GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\n" + host + "\r\n",
		"an asterisk":               "GET * HTTP/1.1\r\n" + host + "\r\n",
		"an upgrade to a WebSocket": "GET /v1/agl/none HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		c.do(func() {
			got, err := t.send(strings.NewReader(raw))
			if err == nil && got.status == http.StatusNotImplemented || got.status == http.StatusHTTPVersionNotSupported || got.status == 0 {
				return // net/http itself refused it
			}
			t.refused(what, got, err, what == "no host" || what == "a folded header" || what == "chunk extensions")
		})
	}
	c.at.Wait()
	// A length beside chunks is how requests are smuggled past a proxy: the second request must not be seen.
	smuggled := "POST " + path + " HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n" + host + "\r\n"
	got, err := t.send(strings.NewReader(smuggled))
	t.refused("a length beside chunks", got, err, false)
}

// hostileBodies returns documents that are invalid requests, or expensive to decode.
func hostileBodies() map[string]string {
	const deep = 200_000
	return map[string]string{
		"empty":                  "",
		"null":                   "null",
		"a number":               "1",
		"a string":               `"x"`,
		"not JSON":               "{",
		"a byte order mark":      "\ufeff{",
		"NULs":                   strings.Repeat("\x00", 1000),
		"invalid UTF-8":          "{\"model\":\"\xff\xfe\",\"input\":\"\xc0\xaf\"}",
		"a lone surrogate":       `{"model":"\ud800","input":"\udfff"} x`,
		"deep arrays":            strings.Repeat("[", deep),
		"deep arrays, closed":    strings.Repeat("[", deep) + strings.Repeat("]", deep),
		"deep objects":           strings.Repeat(`{"a":`, deep),
		"deep within a document": `{"input":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `,"model":"m","messages":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}`,
		"a number of a megabyte": `{"limit":` + strings.Repeat("9", 1<<20) + `,"max_tokens":` + strings.Repeat("9", 1<<20) + `}`,
		"a huge exponent":        `{"limit":1e999999999,"offset":-1e999999999,"max_tokens":1e999999999}`,
		"a name of a megabyte":   `{"` + strings.Repeat("n", 1<<20) + `":1`,
		"100,000 names":          "{" + strings.Repeat(`"a":1,`, 100_000) + `"b":2`,
		"100,000 empty elements": "[" + strings.Repeat("{},", 100_000) + "{}]",
		"wrong types":            `{"rollouts":{"a":1},"input":1,"messages":"x","model":[],"limit":"x","spans":7,"rollout_id":[]}`,
		"something behind it":    `{} {}`,
	}
}

// emptyElements returns a request with two million elements that are nothing, where its path has a list of messages.
func emptyElements(path, element string) (body string, has bool) {
	for end, request := range map[string]string{
		"/chat/completions": `{"model":"m","messages":[%]}`, "/responses": `{"model":"m","input":[%]}`, "/messages": `{"model":"m","max_tokens":1,"messages":[%]}`,
		"/traces": `{"resourceSpans":[{"scopeSpans":[{"spans":[%]}]}]}`, "/metrics": `{"resourceMetrics":[%]}`,
		"/forward_backward": `{"model_id":"x","forward_backward_input":{"data":[%]}}`, "/asample": `{"prompt":{"chunks":[%]}}`,
	} {
		if strings.HasSuffix(path, end) {
			return strings.Replace(request, "%", strings.Repeat(element+",", 2_000_000)+element, 1), true
		}
	}
	return "", false
}

// bodies sends hostileBodies to every path.
func bodies(t *target) {
	hostile := hostileBodies()
	c := newCrew(4)
	for _, path := range t.posts {
		for _, element := range []string{"{}", "null"} {
			if body, has := emptyElements(path, element); has {
				c.do(func() {
					got, err := t.send(t.request(http.MethodPost, path, "", body))
					t.refused(path+": elements "+element, got, err, true)
				})
			}
		}
		for _, what := range slices.Sorted(maps.Keys(hostile)) {
			c.do(func() {
				got, err := t.send(t.request(http.MethodPost, path, "", hostile[what]))
				// Some are valid requests, such as an empty body for the defaults.
				t.refused(path+": "+what, got, err, true)
			})
		}
		for kind, body := range map[string]string{"text/plain": "{}", "multipart/form-data; boundary=x": "--x\r\n\r\n{}\r\n--x--", "application/x-protobuf": "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x7f": "{}"} {
			c.do(func() {
				got, err := t.send(t.request(http.MethodPost, path, "Content-Type: "+kind+"\r\n", body))
				t.refused(path+": "+kind, got, err, true)
			})
		}
		c.do(func() {
			got, err := t.send(t.request(http.MethodPost, path, fmt.Sprintf("Content-Length: %d\r\n", int64(10<<30)), "{"))
			t.refused(path+": 10 GiB", got, err, false)
		})
		c.do(func() {
			got, err := t.send(t.request(http.MethodPost, path, "Transfer-Encoding: chunked\r\n", ""), &chunks{left: 200 << 20})
			t.refused(path+": chunks without end", got, err, false)
		})
	}
	c.at.Wait()
}

// methods sends every method to every path. Methods that a path does not have must be refused.
func methods(t *target) {
	c := newCrew(4)
	for _, path := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(t.posts, t.gets)))) {
		for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "PROPFIND", "post", "GET"} {
			for what, header := range map[string]string{
				"plain": "", "another method": "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\nX-HTTP-Method: DELETE\r\n",
				"a preflight": "Origin: https://evil.example\r\nAccess-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: authorization\r\n",
				"a WebSocket": "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "HTTP/2": "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
			} {
				c.do(func() {
					got, head, err := t.exchange(t.request(method, path, header, ""))
					where := method + " " + path + ", " + what
					if err == nil && got.status == http.StatusNotImplemented {
						return // net/http does not know the method
					}
					t.refused(where, got, err, true)
					if got.status == http.StatusSwitchingProtocols {
						t.Errorf("%s: %s: the protocol is switched", t.name, where)
					}
					if method == http.MethodTrace && (got.status < 400 || strings.Contains(got.body, token)) {
						t.Errorf("%s: %s: %d %.200q", t.name, where, got.status, got.body)
					}
					if allowed := head.Get("Access-Control-Allow-Origin"); allowed != "" && (allowed == "*" || allowed == "https://evil.example") {
						t.Errorf("%s: %s: allows the origin %s", t.name, where, allowed)
					}
				})
			}
		}
	}
	c.at.Wait()
}

// headers sends header fields that change the meaning of a request, or are expensive.
func headers(t *target) {
	var twice bytes.Buffer
	for range 2 { // gzip in gzip
		inner := slices.Clone(twice.Bytes())
		if len(inner) == 0 {
			inner = []byte("{}")
		}
		twice.Reset()
		z := gzip.NewWriter(&twice)
		_, err := z.Write(inner)
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
	}
	c := newCrew(4)
	for _, path := range t.gets {
		for what, header := range map[string]string{
			"many ranges":            "Range: bytes=" + strings.Repeat("0-,", 1000) + "0-\r\n",
			"ranges that overlap":    "Range: bytes=" + strings.Repeat("1-1000,", 500) + "-1\r\n",
			"a range beyond 64 bits": "Range: bytes=99999999999999999999-\r\n",
			"not a range":            "Range: lines=a-b\r\n",
			"a cookie of 64 KB":      "Cookie: a=" + strings.Repeat("c", 64<<10) + "\r\n",
			"10,000 cookies":         "Cookie: " + strings.Repeat("a=b; ", 10_000) + "c=d\r\n",
			"a wrong session":        "Cookie: agl_session=" + strings.Repeat("%00", 1000) + "\r\n",
			"dates":                  "If-Modified-Since: Sat, 99 Foo 9999999 99:99:99 GMT\r\nIf-Unmodified-Since: x\r\nIf-None-Match: " + strings.Repeat("\"a\",", 5000) + "*\r\n",
			"accepted types":         "Accept: " + strings.Repeat("a/b;q=0.5,", 5000) + "*/*\r\nAccept-Encoding: " + strings.Repeat("gzip;q=0.1,", 5000) + "br\r\nAccept-Language: " + strings.Repeat("a-", 5000) + "\r\n",
			"who the caller is not":  "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: ::1\r\nForwarded: for=127.0.0.1;host=evil.example\r\nX-Forwarded-Host: evil.example\r\nX-Original-URL: /admin/flush\r\nX-Rewrite-URL: /admin/flush\r\n",
			"an event beyond 64 bit": "Last-Event-ID: 99999999999999999999\r\nAccept: text/event-stream\r\n",
		} {
			c.do(func() {
				got, err := t.send(t.request(http.MethodGet, path, header, ""))
				t.refused(path+": "+what, got, err, true)
				if strings.Contains(got.body, "evil.example") {
					t.Errorf("%s: %s: %s: %.200q", t.name, path, what, got.body)
				}
			})
		}
	}
	for _, path := range t.posts {
		for what, r := range map[string][2]string{
			"gzip in gzip":        {"Content-Encoding: gzip\r\n", twice.String()},
			"names twice":         {"", `{"model":"m","model":"n","input":{},"input":[],"scopes":["read"],"scopes":["admin"],"rollouts":[],"rollouts":[{"input":1}]}`},
			"a space in chunked":  {"Transfer-Encoding: chunked \r\n", "0\r\n\r\n"},
			"chunked twice":       {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"},
			"chunked, identity":   {"Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"},
			"not quite chunked":   {"Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"},
			"a tab before it":     {"Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n"},
			"a plus in a length":  {"Content-Length: +2\r\n", "{}"},
			"a hexadecimal one":   {"Content-Length: 0x2\r\n", "{}"},
			"a list of lengths":   {"Content-Length: 2, 2\r\n", "{}"},
			"trailers":            {"Transfer-Encoding: chunked\r\nTrailer: Authorization, Content-Length\r\n", "2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\nContent-Length: 9\r\n" + strings.Repeat("X: y\r\n", 50_000) + "\r\n"},
			"a huge idempotency":  {"Idempotency-Key: " + strings.Repeat("k", 100_000) + "\r\n", "{}"},
			"text of another set": {"Content-Type: application/json; charset=utf-7\r\n", "+AHs-+AH0-"},
		} {
			c.do(func() {
				got, err := t.send(t.request(http.MethodPost, path, r[0], r[1]))
				if err == nil && (got.status == http.StatusNotImplemented || got.status == 0) {
					return // net/http itself refused it
				}
				if path == "/admin/flush" && strings.Contains(got.body, "records_lost") {
					return // of calls for rollouts that do not exist, which were hostile paths
				}
				t.refused(path+": "+what, got, err, true)
			})
		}
	}
	c.at.Wait()
}

// chunks is a chunked body of spaces.
type chunks struct {
	left int
	now  []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.now) == 0 {
		if c.left <= 0 {
			return 0, io.EOF
		}
		const size = 1 << 20
		c.left -= size
		c.now = fmt.Appendf(nil, "%x\r\n%s\r\n", size, bytes.Repeat([]byte{' '}, size))
	}
	n := copy(p, c.now)
	c.now = c.now[n:]
	return n, nil
}

// bomb is half a gigabyte of spaces, compressed.
func (t *target) bomb(wrap func(io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	var out bytes.Buffer
	z, err := wrap(&out)
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.Repeat([]byte{0x20}, 1<<20)
	for range 512 {
		if _, err := z.Write(page); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// encodings sends compressed bodies.
func encodings(t *target) {
	gz := t.bomb(func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) })
	zs := t.bomb(func(w io.Writer) (io.WriteCloser, error) {
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	})
	window := "\x28\xb5\x2f\xfd\x00\xf8" + strings.Repeat("\x00", 20) // announces the largest window of zstd
	crew := newCrew(4)
	for _, path := range t.posts {
		for what, c := range map[string]struct{ encoding, body string }{
			"gzip bomb": {"gzip", gz}, "zstd bomb": {"zstd", zs}, "zstd window": {"zstd", window}, "not gzip": {"gzip", "{}"}, "cut gzip": {"gzip", gz[:1000]},
			"not zstd": {"zstd", "{}"}, "deflate": {"deflate", "{}"}, "brotli": {"br", "{}"}, "two": {"gzip, gzip", gz}, "noise": {"\x7f", "{}"},
		} {
			crew.do(func() {
				got, err := t.send(t.request(http.MethodPost, path, "Content-Encoding: "+c.encoding+"\r\n", c.body))
				// A route that reads no body ignores its encoding.
				t.refused(path+": "+what, got, err, true)
			})
		}
	}
	crew.at.Wait()
	var at sync.WaitGroup
	for range 8 {
		at.Go(func() {
			for _, c := range [][2]string{{"gzip", gz}, {"zstd", zs}} {
				got, err := t.send(t.request(http.MethodPost, t.posts[1], "Content-Encoding: "+c[0]+"\r\n", c[1]))
				t.refused("bombs at once", got, err, true)
			}
		})
	}
	at.Wait()
}

// paths sends paths that hide another one.
func paths(t *target) {
	for _, path := range slices.Concat(t.posts, t.gets) {
		for _, hostile := range []string{
			"/" + path, path + "/../../../../etc/passwd", "/x/.." + path, "/." + path, path + "%00", path + "/%2e%2e/shutdown",
			strings.Replace(path, "/", "/%2f", 1), strings.Replace(path, "o", "%6f", 1), path + "%ff%fe", path + ";a=b", path + "/" + strings.Repeat("a/", 10_000),
			path + "/" + strings.Repeat("%41", 30_000), "/rollout//attempt//v1/chat/completions", "/rollout/%00/attempt/%00/v1/chat/completions",
			"/rollout/" + strings.Repeat("r", 100_000) + "/attempt/a/v1/chat/completions", "/\\..\\..\\etc/passwd", "/%5c%2e%2e%5cx", "/v1/../admin/flush",
		} {
			got, err := t.send(t.request(http.MethodPost, hostile, "", `{"model":"m","messages":[]}`))
			// net/http redirects to the clean path, which is no access.
			t.refused(fmt.Sprintf("%.80s", hostile), got, err, true)
			if strings.Contains(got.body, "root:x:") {
				t.Errorf("%s: %.80s: a file of the machine: %.100s", t.name, hostile, got.body)
			}
		}
	}
}

// queries sends hostile query strings.
func queries(t *target) {
	for _, path := range t.gets {
		for _, query := range []string{
			"limit=-9223372036854775809", "limit=99999999999999999999", "offset=9223372036854775807", "limit=1e3", "limit=NaN", "limit=%00", "sort_by=;drop table rollouts",
			"sort_by=rollout_id'--", "sort_order=sideways", "rollout_id=%27%20OR%201=1--", "rollout_id_contains=" + strings.Repeat("%25", 20_000), "filter_logic=xor",
			"status_in=" + strings.Repeat("a&status_in=", 15_000), "%zz=1", "a;b=c", strings.Repeat("&", 100_000), "rollout_id=%ff%fe", "name_contains=%25_%5c",
		} {
			got, err := t.send(t.request(http.MethodGet, path+"?"+query, "", ""))
			t.refused(fmt.Sprintf("%s?%.60s", path, query), got, err, true)
		}
	}
}

// credentials tries wrong tokens.
func credentials(t *target) {
	own := t.header
	t.from = net.IPv4(127, 0, 0, 2) // an address of its own, because it will be throttled
	defer func() { t.header, t.from = own, nil }()
	for _, header := range []string{
		"", "Authorization: Bearer \r\n", "Authorization: Bearer " + token[:5] + "\r\n", "Authorization: Bearer " + token + "x\r\n", "Authorization: bearer\r\n",
		"Authorization: Basic " + strings.Repeat("A", 100_000) + "\r\n", "Authorization: Basic %%%\r\n", "Authorization: Digest username=a\r\n",
		"Authorization: Bearer agl-run-99999999999-" + strings.Repeat("A", 43) + "\r\n", "Authorization: Bearer agl-attempt-99999999999-" + strings.Repeat("A", 43) + "\r\n",
		"Authorization: Bearer agl-span-" + strings.Repeat("A", 10_000) + "\r\n", "X-API-Key: \x7f\r\n", "Cookie: token=" + token + "\r\n", "X-Forwarded-User: admin\r\n",
		"Authorization: Bearer agl_" + strings.Repeat("a", 12) + "_" + strings.Repeat("a", 150) + "\r\n", "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n",
		"Authorization: Bearer sk-sess-ro-1." + strings.Repeat("a", 52) + "\r\n", "Authorization: Bearer " + strings.Repeat("a.", 10_000) + "\r\n",
	} {
		t.header = header
		for _, path := range t.posts {
			got, err := t.send(t.request(http.MethodPost, path, "", "{}"))
			t.refused("credentials "+header+path, got, err, false)
		}
	}
	t.header = "Authorization: Bearer guess\r\n"
	for range 60 {
		got, err := t.send(t.request(http.MethodPost, t.posts[0], "", "{}"))
		t.refused("a guess", got, err, false)
	}
	t.header = own
	if got, err := t.send(t.request(http.MethodPost, t.posts[0], "", "{}")); err != nil || got.status != http.StatusTooManyRequests {
		t.Errorf("%s: the right token after too many wrong ones: %d %.200s, %v, want 429", t.name, got.status, got.body, err)
	}
}

// halfSent stops in the middle of bodies of 60 MB, and of small ones that decompress to as much.
func halfSent(t *target) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for range 60 {
		if _, err := z.Write(bytes.Repeat([]byte{' '}, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Flush(); err != nil { // without an end
		t.Fatal(err)
	}
	const whole, half = 60 << 20, 59 << 20
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for i := range 40 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", t.address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if err := conn.SetDeadline(time.Now().Add(longest)); err != nil {
			t.Fatal(err)
		}
		path, header := t.posts[i%len(t.posts)], fmt.Sprintf("Content-Length: %d\r\n", whole)
		body := io.LimitReader(spaces{}, half)
		if i%2 == 1 {
			header, body = "Content-Encoding: gzip\r\n"+header, bytes.NewReader(zipped.Bytes())
		}
		// The server may answer and close before it has everything.
		_, _ = io.Copy(conn, io.MultiReader(t.request(http.MethodPost, path, header, ""), body))
	}
	t.alive("while 40 bodies are half sent")
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// slowHeaders opens connections that send a header byte by byte, and is served beside them.
func slowHeaders(t *target) {
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for range 500 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", t.address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
			t.Fatal(err)
		}
	}
	t.alive("beside 500 slow headers")
	for _, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(longest)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // it is not wrapped
				t.Fatal("a connection without a whole header stays open")
			}
		}
	}
}
