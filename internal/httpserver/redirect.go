package httpserver

import "net/http"

// SameMethod is the CheckRedirect of an [http.Client] that follows redirects, but not those that turn a POST into a GET, as
// from http to https: another route would answer.
func SameMethod(next *http.Request, via []*http.Request) error {
	const most = 10 // as in net/http
	if next.Method != via[0].Method || len(via) >= most {
		return http.ErrUseLastResponse
	}
	return nil
}
