package oidc_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/access/oidc"
	"github.com/agl-go/agl/access/oidc/oidctest"
)

// A token counts for its own audience and issuer only, and who cannot be asked for keys is
// unavailable instead of a reason to refuse.
func TestTokens(t *testing.T) {
	t.Parallel()
	groups := oidctest.Config{Groups: map[string][]string{"ci": {"build"}}}
	provider, other := oidctest.Start(t, groups), oidctest.Start(t, groups)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	token := provider.MachineToken(t, "ci")
	grants := access.Grants{"build": access.Train}
	for name, c := range map[string]struct {
		cfg  oidc.TokensConfig
		want agl.Code
	}{
		"its own":          {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: grants}, Audience: oidctest.Audience}, ""},
		"keys by URL":      {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: grants}, Audience: oidctest.Audience, KeysURL: provider.URL + "/keys"}, ""},
		"another audience": {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: grants}, Audience: "another"}, agl.CodeUnauthorized},
		"another issuer":   {oidc.TokensConfig{Config: oidc.Config{Issuer: other.URL, Grants: grants}, Audience: oidctest.Audience}, agl.CodeUnauthorized},
		"keys of another":  {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: grants}, Audience: oidctest.Audience, KeysURL: other.URL + "/keys"}, agl.CodeUnauthorized},
		"no grant":         {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: access.Grants{"admins": access.Admin}}, Audience: oidctest.Audience}, agl.CodeUnauthorized},
		"another claim":    {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: grants, GroupsClaim: "realm.roles"}, Audience: oidctest.Audience}, agl.CodeUnauthorized},
		"issuer is away":   {oidc.TokensConfig{Config: oidc.Config{Issuer: gone.URL, Grants: grants}, Audience: oidctest.Audience}, agl.CodeUnavailable},
		"keys are away":    {oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: grants}, Audience: oidctest.Audience, KeysURL: gone.URL}, agl.CodeUnavailable},
	} {
		tokens, err := oidc.NewTokens(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		caller, err := tokens.Check(t.Context(), token)
		if c.want == "" && (err != nil || caller.Scopes != access.Train || caller.Name != "oidc:ci" || caller.Expire.IsZero()) || c.want != "" && (err == nil || agl.ErrorCode(err) != c.want) {
			t.Errorf("%s: %+v, %v, want %q", name, caller, err, c.want)
		}
	}
}

// A provider that is away does not keep a server from starting, and is asked again later.
func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	signIn, err := oidc.NewSignIn(oidc.SignInConfig{Config: oidc.Config{Issuer: gone.URL, Grants: access.Grants{"g": access.Read}}, ClientID: "c", RedirectURL: "http://localhost/back"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := signIn.Begin(t.Context(), ""); agl.ErrorCode(err) != agl.CodeUnavailable {
		t.Errorf("begin: %v", err)
	}
	if _, _, err := signIn.Finish(t.Context(), "", url.Values{"state": {""}, "code": {"x"}}); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("finish without a beginning: %v", err)
	}
}

// A provider that has made a token but does not answer about its keys or about who the person is, is unavailable: the person is
// not refused.
func TestProviderFailsAfterTheToken(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		path   string
		status int // 0 for a connection that breaks
	}{
		"keys 503": {"/keys", 503}, "keys 404": {"/keys", 404}, "keys break off": {"/keys", 0},
		"user 500": {"/userinfo", 500}, "user 429": {"/userinfo", 429}, "user breaks off": {"/userinfo", 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			site := httptest.NewServer(mux)
			t.Cleanup(site.Close)
			provider := oidctest.Start(t, oidctest.Config{Groups: map[string][]string{"ana": {"research"}}, RedirectURL: site.URL + "/back"})
			failing := roundTripper(func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.Path != c.path:
					return http.DefaultTransport.RoundTrip(r)
				case c.status == 0:
					return nil, errors.New("connection reset")
				}
				return &http.Response{StatusCode: c.status, Status: fmt.Sprint(c.status), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			})
			signIn, err := oidc.NewSignIn(oidc.SignInConfig{
				Config:   oidc.Config{Issuer: provider.URL, Grants: access.Grants{"research": access.Read}, Transport: failing},
				ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, RedirectURL: site.URL + "/back",
			})
			if err != nil {
				t.Fatal(err)
			}
			at, keep, err := signIn.Begin(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			mux.Handle("/", http.RedirectHandler(at, http.StatusFound))
			var finished error
			mux.HandleFunc("/back", func(_ http.ResponseWriter, r *http.Request) {
				_, _, finished = signIn.Finish(r.Context(), keep, r.URL.Query())
			})
			_ = provider.SignIn(t, oidctest.Browser(t), site.URL, "ana").Body.Close()
			if agl.ErrorCode(finished) != agl.CodeUnavailable || !strings.Contains(finished.Error(), provider.URL) {
				t.Errorf("got %v, want %s unavailable", finished, provider.URL)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
