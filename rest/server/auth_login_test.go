package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/access/oidc"
	"github.com/agl-go/agl/access/oidc/oidctest"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// loginSite is a server that browsers reach.
type loginSite struct {
	url      string
	keys     *access.Keys
	provider *oidctest.Provider
}

const loginToken = "root-token-canary"

func newLoginSite(t *testing.T, inIDToken bool) *loginSite {
	t.Helper()
	return loginSiteWith(t, inIDToken, oidctest.ClientSecret)
}

// loginSiteWith opens a site that the provider knows only by the right secret.
func loginSiteWith(t *testing.T, inIDToken bool, secret string) *loginSite {
	t.Helper()
	store := memorytest.Open(t)
	site := &loginSite{keys: access.NewKeys(store)}
	web := httptest.NewUnstartedServer(nil)
	site.url = "http://" + web.Listener.Addr().String()
	redirect := site.url + "/v1/agl/login/oidc/callback"
	site.provider = oidctest.Start(t, oidctest.Config{
		Groups: map[string][]string{"ana": {"research"}, "ops": {"research", "platform"}, "guest": {"visitors"}}, InIDToken: inIDToken, RedirectURL: redirect,
	})
	grants := access.Grants{"research": access.Read, "platform": access.Train}
	config := oidc.Config{Issuer: site.provider.URL, Grants: grants}
	signIn, err := oidc.NewSignIn(oidc.SignInConfig{Config: config, ClientID: oidctest.ClientID, ClientSecret: secret, RedirectURL: redirect})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := oidc.NewTokens(oidc.TokensConfig{Config: config, Audience: oidctest.Audience})
	if err != nil {
		t.Fatal(err)
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") })
	web.Config.Handler, err = server.New(server.Config{
		Store: store, Token: loginToken, Keys: site.keys, Audit: access.NewAudit(store), Failed: access.NewThrottle(5), SignIn: signIn, Tokens: tokens, UI: page, PublicURL: site.url, CORSOrigins: []string{"*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	web.Start()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		web.Close()
	})
	return site
}

// ask sends a request with headers, and returns the status and the body.
func (s *loginSite) ask(t *testing.T, browser *http.Client, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, readAll(t, response.Body)
}

const (
	whoami   = "/v1/agl/whoami"
	rollouts = "/v1/agl/rollouts"
	enqueues = "/v1/agl/queues/rollouts/enqueue"
	one      = `{"rollouts":[{"input":1}]}`
)

// Who has not signed in yet learns that the server has projects, whose keys are theirs.
func TestLoginTellsOfProjects(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	for want, registry := range map[string]*project.Registry{
		`{"methods":["key"],"identity":null}`:                 nil,
		`{"methods":["key"],"identity":null,"projects":true}`: project.NewRegistry(store, func(context.Context, string) error { return nil }),
	} {
		answer := httptest.NewRecorder()
		newServer(t, server.Config{Store: store, Token: loginToken, Projects: registry}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v1/agl/login", nil))
		if got := answer.Body.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A browser signs in by a key, may do what the key may, and is out when it signs out, when
// the key is revoked, and when the server gets another token.
func TestSignInByKey(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	key, err := site.keys.Create(t.Context(), access.NewKey{Name: "ana", Scopes: access.Read})
	if err != nil {
		t.Fatal(err)
	}
	browser, second := oidctest.Browser(t), oidctest.Browser(t)
	if status, body := site.ask(t, browser, "GET", "/v1/agl/login", ""); status != 200 || body != `{"methods":["key","oidc"],"identity":null}` {
		t.Errorf("before: %d %s", status, body)
	}
	for _, b := range []*http.Client{browser, second} {
		if status, body := site.ask(t, b, "POST", "/v1/agl/login", `{"key":"`+key.Text+`"}`); status != 200 || !strings.Contains(body, `"name":"ana"`) {
			t.Fatalf("sign in: %d %s", status, body)
		}
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{{"GET", whoami, "", 200}, {"GET", rollouts, "", 200}, {"GET", "/v1/agl/login", "", 200}, {"POST", enqueues, one, 403}, {"GET", "/v1/agl/keys", "", 403}} {
		if status, body := site.ask(t, browser, c.method, c.path, c.body); status != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, body, c.want)
		}
	}
	// A session does not make another one, that would outlive it; nor does a client certificate.
	if status, body := site.ask(t, browser, "POST", "/v1/agl/login", `{"key":" "}`); status != 400 {
		t.Errorf("sign in again without a key: %d %s", status, body)
	}
	if status, body := site.ask(t, browser, "POST", "/v1/agl/logout", "{}"); status != 200 {
		t.Errorf("sign out: %d %s", status, body)
	}
	if status, _ := site.ask(t, browser, "GET", rollouts, ""); status != 401 {
		t.Errorf("after signing out: %d", status)
	}
	if status, _ := site.ask(t, second, "GET", rollouts, ""); status != 200 {
		t.Errorf("the other browser: %d", status)
	}
	status, body := site.ask(t, http.DefaultClient, "DELETE", "/v1/agl/keys/"+key.ID, "", "Authorization", "Bearer "+loginToken)
	if status != 200 {
		t.Fatalf("revoke: %d %s", status, body)
	}
	for status = 200; status == 200; { // the answer of another server's cache ends by itself
		status, body = site.ask(t, second, "GET", rollouts, "")
	}
	if status != 401 {
		t.Errorf("with a revoked key: %d %s", status, body)
	}
}

// The cookie is kept from scripts and from other sites, and a session serves the server's own
// pages alone, even where pages of all origins may call.
func TestSessionsAndOtherSites(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	login := func() http.Header {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.url+"/v1/agl/login", strings.NewReader(`{"key":"`+loginToken+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.Header
	}
	set := login().Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="} {
		if !strings.Contains(set, want) {
			t.Errorf("Set-Cookie: %s: no %s", set, want)
		}
	}
	if strings.Contains(set, "Secure") {
		t.Errorf("Set-Cookie: %s: a browser without TLS would not send it back", set)
	}
	cookie, _, _ := strings.Cut(set, ";")
	for _, c := range []struct {
		name   string
		header []string
		want   int
	}{
		{"own page", []string{"Sec-Fetch-Site", "same-origin", "Origin", site.url}, 201},
		{"no browser", nil, 201},
		{"old browser", []string{"Origin", site.url}, 201},
		{"another site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 401},
		{"another port", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:1"}, 401},
		{"another site, old browser", []string{"Origin", "https://evil.example"}, 401},
		{"no origin", []string{"Origin", "null"}, 401},
	} {
		if status, body := site.ask(t, http.DefaultClient, "POST", enqueues, one, append(c.header, "Cookie", cookie)...); status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, status, body, c.want)
		}
	}
	if status, _ := site.ask(t, http.DefaultClient, "GET", rollouts, "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site"); status != 401 {
		t.Errorf("another site reads: %d", status)
	}
	_, text, _ := strings.Cut(cookie, "=")
	if status, _ := site.ask(t, http.DefaultClient, "GET", rollouts, "", "Authorization", "Bearer "+text); status != 401 {
		t.Errorf("the text of a session as a key: %d", status)
	}
}

// Sign-in is guessed no faster than keys, whatever else the request carries, and takes a
// small body only.
func TestSignInIsThrottled(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	for range 5 {
		if status, body := site.ask(t, http.DefaultClient, "POST", "/v1/agl/login", `{"key":"guess"}`); status != 401 {
			t.Errorf("%d %s", status, body)
		}
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(site.url, "http://"), ":")
	for _, header := range [][]string{nil, {"Cookie", "agl_session_" + port + "=agl_aaaaaaaaaaaa_x"}, {"Authorization", "Bearer a.b.c"}} {
		if status, body := site.ask(t, http.DefaultClient, "POST", "/v1/agl/login", `{"key":"`+loginToken+`"}`, header...); status != 429 {
			t.Errorf("%v: %d %s", header, status, body)
		}
	}
	for body, want := range map[string]int{`{"key":"` + strings.Repeat("x", 5000) + `"}`: 413, `{"key":""}`: 400, `{"kye":"x"}`: 400, `{`: 400} {
		if status, answer := site.ask(t, http.DefaultClient, "POST", "/v1/agl/login", body); status != want && want == 413 || status < 400 || strings.Contains(answer, "xxx") {
			t.Errorf("%.20s: %d %s, want %d", body, status, answer, want)
		}
	}
}

// People sign in by a real provider: the code flow with PKCE, groups in the token or at the
// UserInfo endpoint, scopes by groups.
func TestSignInByOIDC(t *testing.T) {
	t.Parallel()
	for name, inIDToken := range map[string]bool{"groups in the token": true, "groups in UserInfo": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newLoginSite(t, inIDToken)
			for user, want := range map[string]struct {
				signIn, read, enqueue int
				identity              string
			}{
				"ana":   {200, 200, 403, `"name":"oidc:ana@example.org","scopes":["read"]`},
				"ops":   {200, 200, 201, `"name":"oidc:ops@example.org","scopes":["read","train"]`},
				"guest": {401, 401, 401, `guest@example.org has no group`},
			} {
				browser := oidctest.Browser(t)
				back := site.provider.SignIn(t, browser, site.url+"/v1/agl/login/oidc", user)
				answer := readAll(t, back.Body)
				_ = back.Body.Close()
				if back.StatusCode != want.signIn || want.signIn == 200 && (answer != "the page" || back.Request.URL.String() != site.url+"/") {
					t.Errorf("%s: %s at %s: %s", user, back.Status, back.Request.URL, answer)
				}
				if want.signIn == 200 {
					_, answer = site.ask(t, browser, "GET", whoami, "")
				}
				if !strings.Contains(answer, want.identity) {
					t.Errorf("%s: %s, want %s", user, answer, want.identity)
				}
				if status, body := site.ask(t, browser, "GET", rollouts, ""); status != want.read {
					t.Errorf("%s reads: %d %s", user, status, body)
				}
				if status, body := site.ask(t, browser, "POST", enqueues, one); status != want.enqueue {
					t.Errorf("%s enqueues: %d %s", user, status, body)
				}
			}
			_, acts := site.ask(t, http.DefaultClient, "GET", "/v1/agl/audit", "", "Authorization", "Bearer "+loginToken)
			if !strings.Contains(acts, `"by":"oidc:ops@example.org"`) {
				t.Errorf("the audit has nobody's name: %s", acts)
			}
		})
	}
}

// A browser opens several tabs, as when it restores them. Each of the latest four can sign in, in any order.
func TestSignInByTabs(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	browser := oidctest.Browser(t)
	var tabs []*url.URL
	for range 5 {
		tabs = append(tabs, site.provider.Open(t, browser, site.url+"/v1/agl/login/oidc"))
	}
	enter := func(tab int) (int, string) {
		back := site.provider.Enter(t, browser, tabs[tab], "ana")
		defer back.Body.Close()
		return back.StatusCode, readAll(t, back.Body)
	}
	for _, tab := range []int{3, 1, 4, 2} {
		if status, answer := enter(tab); status != 200 || answer != "the page" {
			t.Errorf("tab %d: %d %s", tab, status, answer)
		}
		if status, _ := site.ask(t, browser, "GET", rollouts, ""); status != 200 {
			t.Errorf("tab %d is not signed in: %d", tab, status)
		}
	}
	if status, answer := enter(0); status != 401 || !strings.Contains(answer, "begin again") {
		t.Errorf("the oldest tab: %d %s", status, answer)
	}
	here, err := url.Parse(site.url + "/v1/agl/login/oidc")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range browser.Jar.Cookies(here) {
		if strings.HasPrefix(c.Name, "agl_login") {
			t.Errorf("the browser still keeps %s", c.Name)
		}
	}
}

// A browser that did not begin to sign in, or one to whom somebody else's answer of the
// provider is given, gets no session.
func TestSignInOfAnotherBrowser(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	victim, attacker := oidctest.Browser(t), oidctest.Browser(t)
	var taken string
	attacker.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.Contains(r.URL.Path, "/login/oidc/callback") {
			taken = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	_ = site.provider.SignIn(t, attacker, site.url+"/v1/agl/login/oidc", "ana").Body.Close()
	if taken == "" {
		t.Fatal("the provider did not send the browser back")
	}
	victim.CheckRedirect = func(r *http.Request, _ []*http.Request) error { return http.ErrUseLastResponse }
	if status, _ := site.ask(t, victim, "GET", "/v1/agl/login/oidc", ""); status != 303 {
		t.Fatalf("begin: %d", status)
	}
	for who, browser := range map[string]*http.Client{"one that began, too": victim, "one that did not": oidctest.Browser(t)} {
		if status, body := site.ask(t, browser, "GET", taken, ""); status != 401 || !strings.Contains(body, "did not begin") {
			t.Errorf("%s: %d %s", who, status, body)
		}
		if status, _ := site.ask(t, browser, "GET", rollouts, ""); status != 401 {
			t.Errorf("%s is signed in: %d", who, status)
		}
	}
}

// asking is a transport that asks as browsers do that show the answer.
func asking(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	return http.DefaultTransport.RoundTrip(r)
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Somebody who could not sign in reads why, on a page that leads back.
func TestFailedSignInIsAPage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		secret, user string
		status       int
		want         string
	}{
		"no group":            {oidctest.ClientSecret, "guest", 401, "guest@example.org has no group that may do something here; the claim groups lists [&#34;visitors&#34;]"},
		"wrong client secret": {"wrong-canary", "ana", 503, "does not accept this server as the client &#34;agl&#34; (&#34;invalid_client&#34;)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := loginSiteWith(t, true, c.secret)
			browser := oidctest.Browser(t)
			browser.Transport = transport(asking)
			back := site.provider.SignIn(t, browser, site.url+"/v1/agl/login/oidc", c.user)
			answer := readAll(t, back.Body)
			_ = back.Body.Close()
			if back.StatusCode != c.status || !strings.Contains(answer, c.want) || !strings.Contains(answer, `href="/"`) || strings.Contains(answer, "canary") {
				t.Errorf("%s: %s", back.Status, answer)
			}
			for header, want := range map[string]string{"Content-Type": "text/html; charset=utf-8", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
				if got := back.Header.Get(header); got != want {
					t.Errorf("%s: got %q, want %q", header, got, want)
				}
			}
			if policy := back.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
				t.Errorf("Content-Security-Policy: %s", policy)
			}
		})
	}
	site := newLoginSite(t, true)
	for range 5 {
		status, answer := site.ask(t, http.DefaultClient, "GET", "/v1/agl/login/oidc/callback?error=<b>", "", "Accept", "text/html")
		if status != 401 || strings.Contains(answer, "<b>") || !strings.Contains(answer, "this browser did not begin") {
			t.Errorf("%d %s", status, answer)
		}
	}
	if status, answer := site.ask(t, http.DefaultClient, "GET", "/v1/agl/login/oidc/callback", "", "Accept", "text/html"); status != 429 || !strings.Contains(answer, "<p role") {
		t.Errorf("one too many: %d %s", status, answer)
	}
	if status, answer := site.ask(t, http.DefaultClient, "GET", "/v1/agl/login/oidc/callback", ""); status != 429 || !strings.HasPrefix(answer, "{") {
		t.Errorf("a program: %d %s", status, answer)
	}
}

// The provider sends browsers to the public URL, so a sign-in that begins by another name of the server goes on there.
func TestSignInByAnotherNameOfTheServer(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	other := strings.Replace(site.url, "127.0.0.1", "localhost", 1)
	browser := oidctest.Browser(t)
	browser.Transport = transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Hostname() == "localhost" { // which may have another address than the server
			r = r.Clone(r.Context())
			r.Host, r.URL.Host = r.URL.Host, strings.TrimPrefix(site.url, "http://")
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	back := site.provider.SignIn(t, browser, other+"/v1/agl/login/oidc", "ana")
	answer := readAll(t, back.Body)
	_ = back.Body.Close()
	if back.StatusCode != http.StatusOK || back.Request.URL.String() != site.url+"/" {
		t.Errorf("%s at %s: %s", back.Status, back.Request.URL, answer)
	}
	// A proxy in front that passes on no name does not make it go round.
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, other+"/v1/agl/login/oidc?public", nil)
	if err != nil {
		t.Fatal(err)
	}
	begun, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = begun.Body.Close()
	if to := begun.Header.Get("Location"); begun.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, site.provider.URL) {
		t.Errorf("%s to %s, want to the provider", begun.Status, to)
	}
}

// Machines show tokens of a real issuer. Others are refused: of another audience, changed,
// unsigned, and with an invented key, for which the issuer is not asked each time.
func TestMachineTokens(t *testing.T) {
	t.Parallel()
	site := newLoginSite(t, true)
	token := site.provider.MachineToken(t, "ops")
	for range 3 {
		if status, body := site.ask(t, http.DefaultClient, "POST", enqueues, one, "Authorization", "Bearer "+token); status != 201 {
			t.Fatalf("a machine: %d %s", status, body)
		}
	}
	if n := site.provider.Asked("/keys"); n != 1 {
		t.Errorf("the issuer was asked for its keys %d times", n)
	}
	if status, body := site.ask(t, http.DefaultClient, "POST", enqueues, one, "Authorization", "Bearer "+site.provider.MachineToken(t, "ana")); status != 403 {
		t.Errorf("a machine that may read: %d %s", status, body)
	}
	if status, body := site.ask(t, http.DefaultClient, "POST", "/v1/agl/login", `{"key":"`+token+`"}`); status != 400 || !strings.Contains(body, "JWT") {
		t.Errorf("a machine's token signs in: %d %s", status, body)
	}
	parts := strings.Split(token, ".")
	const none, invented = "eyJhbGciOiJub25lIn0", "eyJhbGciOiJSUzI1NiIsImtpZCI6ImludmVudGVkIn0"
	for name, given := range map[string]string{
		"changed": parts[0] + "." + parts[1][:len(parts[1])-4] + "AAAA." + parts[2], "unsigned": none + "." + parts[1] + ".", "no signature": parts[0] + "." + parts[1] + ".",
		"of an invented key": invented + "." + parts[1] + "." + parts[2],
	} {
		if status, body := site.ask(t, http.DefaultClient, "GET", rollouts, "", "Authorization", "Bearer "+given); status != 401 || strings.Contains(body, parts[2]) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for range 20 {
		site.ask(t, http.DefaultClient, "GET", rollouts, "", "Authorization", "Bearer "+invented+"."+parts[1]+"."+parts[2])
	}
	if status, body := site.ask(t, http.DefaultClient, "GET", rollouts, "", "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("a good token beside bad ones: %d %s", status, body)
	}
	if n := site.provider.Asked("/keys"); n > 10 {
		t.Errorf("20 tokens with an invented key made the server ask for keys %d times", n)
	}
}
