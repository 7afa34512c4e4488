package httpserver

import (
	"fmt"
	"net/http"
)

// SameMethod is the CheckRedirect of an [http.Client] that follows redirects, but not those that turn a POST into a GET, as
// from http to https: another route would answer. Nor does it take an X-API-Key to another host, which net/http does.
func SameMethod(next *http.Request, via []*http.Request) error {
	const most = 10 // as in net/http
	tells := next.Header.Get("X-Api-Key") != "" && next.URL.Hostname() != via[0].URL.Hostname()
	if next.Method != via[0].Method || tells || len(via) >= most {
		return http.ErrUseLastResponse
	}
	return nil
}

// ByMethod returns a copy of a client that redirects by [SameMethod], unless the client has a rule of its own.
func ByMethod(client *http.Client) *http.Client {
	c := *client
	if c.CheckRedirect == nil {
		c.CheckRedirect = SameMethod
	}
	return &c
}

// Redirected returns the error message of a redirect that [SameMethod] does not follow, else "". The whose is what was asked, as in
// "the store".
func Redirected(req *http.Request, res *http.Response, whose string) string {
	location := res.Header.Get("Location")
	if res.StatusCode < http.StatusMultipleChoices || res.StatusCode >= http.StatusBadRequest || location == "" {
		return ""
	}
	return fmt.Sprintf("%s's server redirects %s requests (%d) to %.200q: use the URL of %s there",
		whose, req.Method, res.StatusCode, location, whose)
}
