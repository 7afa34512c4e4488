package dashboard_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/agl-go/agl/dashboard"
)

var newPage = sync.OnceValues(dashboard.New)

func get(t *testing.T, file string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	page, err := newPage()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, file, nil)
	r.Header = header
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for file, contentType := range map[string]string{
		"/":               "text/html; charset=utf-8",
		"/index.html":     "text/html; charset=utf-8",
		"/app.js":         "text/javascript; charset=utf-8",
		"/style.css":      "text/css; charset=utf-8",
		"/icon.svg":       "image/svg+xml",
		"/vendor/htm.js":  "text/javascript; charset=utf-8",
		"/pages/other.js": "",
		// Only the page's own files are served.
		"/vendor/README.md": "", "/vendor/SHA256SUMS": "", "/../dashboard.go": "", "/pages": "", "/pages/": "",
	} {
		w := get(t, file, nil)
		if contentType == "" {
			if w.Code != http.StatusNotFound {
				t.Errorf("%s: status %d, want 404", file, w.Code)
			}
			continue
		}
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != contentType || w.Body.Len() == 0 {
			t.Errorf("%s: status %d, %q, %d bytes", file, w.Code, got, w.Body.Len())
		}
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	plain := get(t, "/app.js", nil)
	for accept, compressed := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "br": false} {
		w := get(t, "/app.js", http.Header{"Accept-Encoding": {accept}})
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != compressed {
			t.Errorf("%q: compressed is %t", accept, got)
			continue
		}
		var body io.Reader = w.Body
		if compressed {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		if content, err := io.ReadAll(body); err != nil || !bytes.Equal(content, plain.Body.Bytes()) {
			t.Errorf("%q: %d bytes, error %v", accept, len(content), err)
		}
	}
	same := get(t, "/app.js", http.Header{"If-None-Match": {plain.Header().Get("ETag")}})
	if same.Code != http.StatusNotModified || same.Body.Len() != 0 {
		t.Errorf("a browser that has the file gets status %d and %d bytes", same.Code, same.Body.Len())
	}
}

// The page may load only what it brings, and its only inline script is the one that
// the policy names.
func TestPolicy(t *testing.T) {
	t.Parallel()
	w := get(t, "/", nil)
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'self';") || strings.Contains(policy, "unsafe") || strings.Count(policy, "sha256-") != 1 {
		t.Errorf("the policy is %s", policy)
	}
	if n := strings.Count(w.Body.String(), "<script"); n != 2 {
		t.Errorf("the page has %d scripts, want the import map and app.js", n)
	}
	if outside := regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).FindString(w.Body.String()); outside != "" {
		t.Errorf("the page loads %s", outside)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	total := 0
	err := fs.WalkDir(os.DirFS("ui"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if ext := path.Ext(name); ext == ".md" || ext == ".LICENSE" || name == "vendor/SHA256SUMS" {
			return nil
		}
		w := get(t, "/"+name, http.Header{"Accept-Encoding": {"gzip"}})
		if w.Code != http.StatusOK {
			t.Errorf("%s: status %d", name, w.Code)
		}
		total += w.Body.Len()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if most := 300 << 10; total > most {
		t.Errorf("the page takes %d bytes, want at most %d", total, most)
	}
}

// The libraries are as they were published.
func TestVendor(t *testing.T) {
	t.Parallel()
	sums, err := os.Open("ui/vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	listed := map[string]bool{}
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		content, err := os.ReadFile("ui/vendor/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is not what SHA256SUMS says", name)
		}
		listed[name] = true
	}
	files, err := os.ReadDir("ui/vendor")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := file.Name()
		if ext := path.Ext(name); (ext == ".js" || ext == ".css") && !listed[name] {
			t.Errorf("%s is not in SHA256SUMS", name)
		}
	}
}
