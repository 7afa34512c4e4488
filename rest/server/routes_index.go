package server

import (
	"html"
	"net/http"
)

// index returns the page of a server without a dashboard.
func index(version string) handler {
	page := []byte(`<!doctype html>
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
`)
	return func(x *exchange) error {
		x.Header().Set("Content-Type", "text/html; charset=utf-8")
		return x.write(http.StatusOK, page)
	}
}
