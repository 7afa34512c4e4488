package server

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// SignIn lets people sign in through a third party, such as an OpenID Connect provider.
type SignIn interface {
	// Begin returns the URL to send the browser to, and what the browser keeps for Finish instead of kept, which it keeps for
	// its other tabs.
	Begin(ctx context.Context, kept string) (target, keep string, err error)
	// Finish returns who has signed in, and what the browser still keeps. returned holds the query parameters with which the
	// browser came back.
	Finish(ctx context.Context, kept string, returned url.Values) (caller access.Caller, keep string, err error)
	// Grants returns what the groups of those who have signed in may do.
	Grants() access.Grants
}

const (
	sessionCookie = "agl_session"
	flowCookie    = "agl_login"
	flowTTL       = 10 * time.Minute
	maxLoginBody  = 4 << 10 // bytes; no credentials are needed to send it
	// redirected is the query parameter of a sign-in that has been redirected to the public URL.
	redirected = "public"
)

// login lets browsers sign in. The session is a cookie that scripts cannot read, and that the browser does not send
// with requests of other sites.
type login struct {
	auth   *auth
	signIn SignIn // may be nil
	public string // the URL of the server, to which providers send browsers back; may be ""
	base   string // its path, such as /p/search, or ""
	secure bool   // browsers reach the server by HTTPS
	// projects is set if the server has some besides its own store.
	projects bool
}

// loginJSON says how callers can sign in, who the caller is, and whether there are projects.
type loginJSON struct {
	Methods  []string         `json:"methods"` // key, oidc
	Identity *access.Identity `json:"identity"`
	Projects bool             `json:"projects,omitzero"`
}

// answer says how callers can sign in, and who the caller is.
func (l *login) answer(x *exchange) error {
	says := loginJSON{Methods: []string{}, Projects: l.projects}
	if l.auth.sessions != nil && l.auth.token != "" {
		says.Methods = append(says.Methods, "key")
		if l.signIn != nil {
			says.Methods = append(says.Methods, "oidc")
		}
	}
	switch err := l.auth.identify(x); agl.ErrorCode(err) {
	case agl.CodeUnauthorized:
	default:
		if err != nil {
			return err
		}
		identity := x.caller.Identity()
		says.Identity = &identity
	}
	return x.answerJSON(http.StatusOK, &says, nil)
}

func (l *login) check() error {
	if l.auth.sessions == nil || l.auth.token == "" {
		return agl.Errorf(agl.CodeUnimplemented, "nobody can sign in to this server: it has no token, or its store keeps no documents")
	}
	return nil
}

// begin signs in with a key or the token.
func (l *login) begin(x *exchange) error {
	if err := l.check(); err != nil {
		return err
	}
	r := x.request
	if r.ContentLength > maxLoginBody {
		return errTooLarge(maxLoginBody)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" {
		return wire.ErrDetail(http.StatusUnsupportedMediaType, "header Content-Encoding: must be absent here")
	}
	r.Body = http.MaxBytesReader(x, r.Body, maxLoginBody)
	var body wire.GivenKey
	if err := x.decode(&body, bodyRequired); err != nil {
		return err
	}
	if l.auth.kind(body.Key) == asSigned { // a session would not end when the token's groups lose their scopes
		return agl.Errorf(agl.CodeInvalid, "key: got a JWT, which cannot begin a session: send it with each request, or sign in with a key")
	}
	if err := l.auth.identifyBy(x, body.Key); err != nil {
		return err
	}
	identity := x.caller.Identity()
	return l.admit(x, func() error { return x.answerJSON(http.StatusOK, &identity, nil) })
}

// admit starts a session of the caller, and answers.
func (l *login) admit(x *exchange, answer func() error) error {
	text, until, err := l.auth.sessions.Begin(x.context(), &x.caller)
	if err != nil {
		return err
	}
	x.log.Info("signed in", "by", x.caller.By(), "from", access.From(x.request))
	l.setCookie(x, sessionCookie, text, l.base+"/", http.SameSiteStrictMode, time.Until(until))
	return answer()
}

// end signs out.
func (l *login) end(x *exchange) error {
	if err := l.check(); err != nil {
		return err
	}
	if text := cookie(x.request, sessionCookie); text != "" {
		if err := l.auth.sessions.End(x.context(), text); err != nil {
			return err
		}
	}
	l.setCookie(x, sessionCookie, "", l.base+"/", http.SameSiteStrictMode, 0)
	return x.answerText(http.StatusOK, "{}")
}

// beginOIDC sends the browser to the identity provider.
func (l *login) beginOIDC(x *exchange) error {
	if err := l.checkOIDC(); err != nil {
		return err
	}
	if at, err := url.Parse(l.public); err == nil && l.public != "" && !strings.EqualFold(at.Host, x.request.Host) && !x.request.URL.Query().Has(redirected) {
		// The provider sends the browser to the public URL, which would not get a cookie of this name of the server. A proxy in
		// front may hide the name that the browser used, so this happens once.
		return redirect(x, l.public+wire.Prefix+wire.LoginOIDC+"?"+redirected)
	}
	target, keep, err := l.signIn.Begin(x.context(), cookie(x.request, flowCookie))
	if err != nil {
		return err
	}
	l.keepFlow(x, keep)
	return redirect(x, target)
}

// endOIDC handles the browser that the identity provider has sent back.
func (l *login) endOIDC(x *exchange) error {
	if err := l.checkOIDC(); err != nil {
		return err
	}
	if wait := l.auth.failed.Blocked(x.request.RemoteAddr, time.Now()); wait > 0 {
		return &access.ThrottledError{Wait: wait}
	}
	caller, keep, err := l.signIn.Finish(x.context(), cookie(x.request, flowCookie), x.request.URL.Query())
	if err != nil {
		if agl.ErrorCode(err) == agl.CodeUnauthorized {
			l.auth.failed.Fail(x.request.RemoteAddr, time.Now())
		}
		return err
	}
	x.caller = caller
	l.keepFlow(x, keep)
	return l.admit(x, func() error { return redirect(x, l.base+"/") })
}

// keepFlow lets the browser keep what Finish needs.
func (l *login) keepFlow(x *exchange, keep string) {
	life := flowTTL
	if keep == "" {
		life = 0
	}
	// Lax: the browser comes back from another site.
	l.setCookie(x, flowCookie, keep, l.base+wire.Prefix+wire.LoginOIDC, http.SameSiteLaxMode, life)
}

func (l *login) checkOIDC() error {
	if l.signIn == nil {
		return agl.Errorf(agl.CodeUnimplemented, "this server has no identity provider; see --oidc-issuer")
	}
	return l.check()
}

func redirect(x *exchange, target string) error {
	x.Header()["Cache-Control"] = []string{"no-store"}
	x.Header()["Location"] = []string{target}
	return x.write(http.StatusSeeOther, nil)
}

// setCookie sets a cookie, or deletes it if life is 0.
func (l *login) setCookie(x *exchange, name, value, path string, site http.SameSite, life time.Duration) {
	age := int(life / time.Second)
	if age <= 0 {
		age = -1
	}
	http.SetCookie(x, &http.Cookie{ //nolint:gosec // Secure wherever the browser uses HTTPS; others would not send the cookie back
		Name: name + portSuffix(x.request), Value: value, Path: path, MaxAge: age,
		HttpOnly: true, Secure: l.secure || x.request.TLS != nil, SameSite: site,
	})
}

// cookie returns the value of a cookie that setCookie has set.
func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name + portSuffix(r))
	if err != nil {
		return ""
	}
	return c.Value
}

// portSuffix distinguishes the cookies of several servers on one machine: browsers send all cookies of a host to each
// of its ports.
func portSuffix(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" && strings.Trim(port, "0123456789") == "" {
		return "_" + port
	}
	return ""
}

// ownPage reports whether a request comes from a page of the server itself, or of an origin in CORSOrigins: only
// those may use a session. The Guard lets pages of other sites read, and with the origin "*" also write, because
// their requests carry no credentials.
func (a *auth) ownPage(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && slices.Contains(a.origins, origin) {
		return true
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	if origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host == r.Host
}
