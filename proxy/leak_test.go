package proxy_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// However a key is spelled and wherever it stands, it is checked, and no backend gets it: not the
// proxy's token, not a key of the store, not that of an attempt.
func TestKeysStayHere(t *testing.T) {
	t.Parallel()
	const token = "the-proxys-token"
	keys := access.NewKeys(memorytest.Open(t))
	var seen atomic.Pointer[string]
	p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
		var all strings.Builder
		_ = r.Header.Write(&all)
		text := r.URL.String() + "\n" + all.String()
		seen.Store(&text)
		return respond(http.StatusOK, nil, usedBody), nil
	}, func(c *proxy.Config) { c.Token, c.Access = token, keys }, "one")
	closeAtEnd(t, p)
	good, bad := create(t, keys, access.NewKey{Name: "good", Scopes: access.Live}), create(t, keys, access.NewKey{Name: "bad", Scopes: access.Read})
	basic := func(key string) string { return base64.StdEncoding.EncodeToString([]byte("agl:" + key)) }
	const own = "sk-of-the-backend" // passes as it is: the backend has no key here
	for _, tc := range []struct {
		name   string
		header http.Header
		query  string
		status int
	}{
		{"none", nil, "", 200},
		{"one of the backend's", http.Header{"Authorization": {"Bearer " + own}}, "", 200},
		{"the token", http.Header{"Authorization": {"Bearer " + token}}, "", 200},
		{"the token as X-Api-Key", http.Header{"X-Api-Key": {token}}, "", 200},
		{"the token by Basic", http.Header{"Authorization": {"Basic " + basic(token)}}, "", 200},
		{"a key", http.Header{"Authorization": {"Bearer " + good}}, "", 200},
		{"in another case", http.Header{"Authorization": {"bearer " + good}}, "", 200},
		{"in another case, without the scope", http.Header{"Authorization": {"BEARER " + bad}}, "", 403},
		{"with spaces", http.Header{"Authorization": {"Bearer   " + bad}}, "", 403},
		{"with a tab", http.Header{"Authorization": {"Bearer\t" + bad}}, "", 403},
		{"in a list", http.Header{"Authorization": {"Bearer x, Bearer " + bad}}, "", 403},
		{"by Basic", http.Header{"Authorization": {"Basic " + basic(good)}}, "", 200},
		{"by Basic, without the scope", http.Header{"Authorization": {"basic " + basic(bad)}}, "", 403},
		{"without a scheme", http.Header{"Authorization": {bad}}, "", 403},
		{"Azure's header", http.Header{"Api-Key": {bad}}, "", 403},
		{"a second value", http.Header{"Authorization": {"Bearer " + own, "Bearer " + bad}}, "", 403},
		{"in the second header", http.Header{"Authorization": {"Bearer " + own}, "X-Api-Key": {bad}}, "", 403},
		{"beside one of the backend's", http.Header{"Authorization": {"Bearer " + own}, "X-Api-Key": {good}}, "", 200},
		{"of an attempt", http.Header{"Authorization": {"bearer agl-attempt-9999999999-x"}}, "", 200},
		{"of a session", http.Header{"X-Api-Key": {"sk-sess-ro-1.x"}}, "", 200},
		{"in the URL", nil, "?api_key=" + good, 401},
		{"the token in the URL", nil, "?a=b&key=" + token, 401},
		{"a query", nil, "?api-version=1", 200},
	} {
		seen.Store(nil)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions"+tc.query, strings.NewReader(`{"model":"m","messages":[]}`))
		r.Header = tc.header.Clone()
		if r.Header == nil {
			r.Header = http.Header{}
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.name, w.Code, w.Body, tc.status)
		}
		text := seen.Load()
		if text == nil {
			if tc.status == http.StatusOK {
				t.Errorf("%s: has not reached the backend", tc.name)
			}
			continue
		}
		for _, secret := range []string{token, good, bad, basic(token), basic(good), basic(bad), "agl-attempt", "sk-sess"} {
			if strings.Contains(*text, secret) {
				t.Errorf("%s: the backend got %s", tc.name, *text)
			}
		}
		if strings.Contains(tc.name, "backend's") && tc.header.Get("X-Api-Key") == "" && !strings.Contains(*text, own) {
			t.Errorf("%s: the backend got %s, want its own key", tc.name, *text)
		}
	}
}
