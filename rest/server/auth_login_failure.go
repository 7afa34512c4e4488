package server

import (
	"bytes"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// failurePage tells people that they could not sign in. They are not on the store's own page then.
var failurePage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in – agl</title><link rel="stylesheet" href="{{.Base}}/style.css"></head>
<body><main>
<h1>You are not signed in</h1>
<p role="alert">{{.Failure}}</p>
<p><a href="{{.Base}}/">Back to the store</a></p>
</main></body>
</html>
`))

// forPeople returns a handler that answers with a page where next fails and a browser shows the answer.
func (l *login) forPeople(next handler) handler {
	return func(x *exchange) error {
		err := next(x)
		if err == nil || isWriteError(err) || x.status != 0 || x.context().Err() != nil {
			return err
		}
		code := agl.ErrorCode(err)
		status, _ := wire.StatusOf(code)
		failure := err.Error()
		if throttled, ok := errors.AsType[*access.ThrottledError](err); ok {
			status, err = http.StatusTooManyRequests, errThrottled(x, throttled.Wait)
		}
		if status == http.StatusInternalServerError {
			return err
		}
		if code == agl.CodeUnauthorized { // the throttle limits how many there are
			x.log.Info("a sign-in failed", "from", access.From(x.request), "error", failure)
		}
		if !strings.Contains(x.request.Header.Get("Accept"), "text/html") {
			return err
		}
		if code == agl.CodeUnavailable {
			x.refusals.warn(x.log, code, x.request.URL.Path, err)
		}
		var page bytes.Buffer
		if err := failurePage.Execute(&page, struct{ Base, Failure string }{l.base, failure}); err != nil {
			return err
		}
		h := x.Header()
		h["Content-Type"] = []string{"text/html; charset=utf-8"}
		h["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
		h["X-Content-Type-Options"] = []string{"nosniff"}
		h["Referrer-Policy"] = []string{"no-referrer"} // the address may have a code of the provider
		h["Cache-Control"] = []string{"no-store"}
		return x.write(status, page.Bytes())
	}
}
