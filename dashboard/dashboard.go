package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
)

//go:embed ui
var files embed.FS

// asset is one file of the page. It is compressed when it is first requested, so that a store whose page nobody opens
// starts as fast.
type asset struct {
	contentType string
	etag        string
	plain       []byte
	compressed  func() ([]byte, error)
}

// page serves the assets by their path.
type page struct {
	assets map[string]*asset
	policy string
}

// New returns a handler of GET and HEAD for the page and its files. It reads only the path and two headers of a
// request and serves no data of the store, so it needs no authorization.
func New() (http.Handler, error) {
	p := &page{assets: map[string]*asset{}}
	err := fs.WalkDir(files, "ui", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !served(name) {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		p.assets[strings.TrimPrefix(name, "ui")] = newAsset(name, content)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	p.assets["/"] = p.assets["/index.html"]
	p.policy = contentSecurityPolicy(p.assets["/"].plain)
	return p, nil
}

// served reports whether a file belongs to the page; others only document it.
func served(name string) bool {
	switch path.Ext(name) {
	case ".html", ".css", ".js", ".svg":
		return true
	default:
		return false
	}
}

func newAsset(name string, content []byte) *asset {
	contentType := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".js" { // some systems map .js to another type, which browsers refuse for modules
		contentType = "text/javascript; charset=utf-8"
	}
	sum := sha256.Sum256(content)
	return &asset{
		contentType: contentType,
		etag:        `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
		plain:       content,
		compressed:  sync.OnceValues(func() ([]byte, error) { return compress(content) }),
	}
}

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

// importMap is the page's only inline script. It says where the modules of ui/vendor are; browsers accept an import
// map only inline.
var importMap = regexp.MustCompile(`(?s)<script type="importmap">(.*?)</script>`)

// contentSecurityPolicy allows the page its own files, its import map, and nothing
// else. Images may be inline, because messages hold them as data.
func contentSecurityPolicy(html []byte) string {
	var script []byte
	if m := importMap.FindSubmatch(html); m != nil {
		script = m[1]
	}
	sum := sha256.Sum256(script)
	return "default-src 'self'; script-src 'self' 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// ServeHTTP answers with a file of the page, or 404.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	a := p.assets[r.URL.Path]
	if a == nil {
		http.Error(w, "404: the page has no such file; its views are at /#/", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "no-cache") // with the ETag: a new version of agl is seen at once
	h.Set("ETag", a.etag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := a.plain
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		if packed, err := a.compressed(); err == nil {
			h.Set("Content-Encoding", "gzip")
			content = packed
		}
	}
	h.Set("Content-Length", fmt.Sprint(len(content)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(content) // fails only if the browser has left
}

// acceptsGzip reports whether a browser accepts gzip; q=0 refuses it.
func acceptsGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		if strings.TrimSpace(coding) == "gzip" {
			q := strings.ReplaceAll(parameters, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}
