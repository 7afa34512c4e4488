package rest

import (
	"html"
	"io"
	"net/http"
)

// plainPage is what a server without a dashboard shows at /.
func plainPage(version string) http.Handler {
	page := `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>agl store</title></head>
<body><h1>agl store</h1>
<p>Version ` + html.EscapeString(version) + `</p>
<ul>
<li><a href="/v1/agl/health">health</a></li>
<li><a href="/v1/agl/statistics">statistics</a></li>
<li><a href="/v1/agl/rollouts?limit=20&amp;sort_by=start_time&amp;sort_order=desc">latest rollouts</a></li>
<li><a href="/v1/agl/workers">workers</a></li>
<li><a href="/v1/agl/resources/latest">latest resources</a></li>
<li><a href="/metrics">metrics</a></li>
</ul></body></html>
`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"detail":"Not Found"}`) // the client may be gone
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page) // the client may be gone
	})
}
