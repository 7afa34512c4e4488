package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
)

// SignInConfig configures [NewSignIn]. ClientSecret is empty for a public client.
type SignInConfig struct {
	Config

	ClientID, ClientSecret string
	// RedirectURL is the page that the provider sends browsers back to.
	RedirectURL string
	// Scopes are requested in addition to openid, profile and email. Many providers list groups only if the scope
	// groups is requested.
	Scopes []string
}

// SignIn signs people in. Its methods are safe for concurrent use.
type SignIn struct {
	cfg       SignInConfig
	discovery *discovery
	keys      *keySet
}

// NewSignIn returns a SignIn; CodeInvalid. It does not contact the provider yet.
func NewSignIn(cfg SignInConfig) (*SignIn, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.ClientID == "" {
		return nil, agl.Errorf(agl.CodeInvalid, "client id: must not be empty")
	}
	if u, err := url.Parse(cfg.RedirectURL); err != nil || u.Host == "" {
		return nil, agl.Errorf(agl.CodeInvalid, "redirect URL: got %q, must be a URL", cfg.RedirectURL)
	}
	asked := newDiscovery(&cfg.Config)
	return &SignIn{cfg: cfg, discovery: asked, keys: &keySet{issuer: asked}}, nil
}

// Grants returns what groups may do.
func (s *SignIn) Grants() access.Grants { return s.cfg.Grants }

// flow is what a tab of a browser keeps while its user is at the provider.
type flow struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

func (s *SignIn) oauth(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: s.cfg.ClientID, ClientSecret: s.cfg.ClientSecret, Endpoint: p.Endpoint(), RedirectURL: s.cfg.RedirectURL,
		Scopes: append([]string{oidc.ScopeOpenID, "profile", "email"}, s.cfg.Scopes...),
	}
}

// maxFlows bounds how many tabs of one browser may be at the provider at once. Beyond it the oldest must begin again.
const maxFlows = 4

// Begin returns the URL of the provider's page, and what the browser must keep for [SignIn.Finish] instead of kept, which it
// keeps for other tabs, or ""; no other browser may see it. The error is CodeUnavailable if the provider cannot be reached.
func (s *SignIn) Begin(ctx context.Context, kept string) (target, keep string, err error) {
	p, err := s.discovery.provider(ctx)
	if err != nil {
		return "", "", err
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	flows := append([]flow{f}, decodeFlows(kept)...)
	keep, err = encodeFlows(flows[:min(len(flows), maxFlows)])
	return s.oauth(p).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), keep, err
}

// decodeFlows returns the flows that a browser says it keeps, none if they are not ours.
func decodeFlows(kept string) (flows []flow) {
	doc, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil || json.Unmarshal(doc, &flows) != nil {
		return nil
	}
	return flows
}

// encodeFlows is the opposite of decodeFlows; "" for no flows.
func encodeFlows(flows []flow) (string, error) {
	if len(flows) == 0 {
		return "", nil
	}
	doc, err := json.Marshal(flows)
	return base64.RawURLEncoding.EncodeToString(doc), err
}

// Finish returns who has signed in, and what the browser keeps for its other tabs, "" for nothing. returned holds the query
// parameters with which the provider sent the browser back. The error is CodeUnauthorized if nobody signed in, or somebody
// without any scope, and CodeUnavailable if the provider cannot be asked, or gives no groups in its token and refuses UserInfo.
func (s *SignIn) Finish(ctx context.Context, kept string, returned url.Values) (caller access.Caller, keep string, err error) {
	flows := decodeFlows(kept)
	i := slices.IndexFunc(flows, func(f flow) bool {
		return f.State != "" && subtle.ConstantTimeCompare([]byte(f.State), []byte(returned.Get("state"))) == 1
	})
	if i < 0 {
		return access.Caller{}, kept, agl.Errorf(agl.CodeUnauthorized, "this browser did not begin to sign in, or did so too long ago; begin again")
	}
	if caller, err = s.finish(ctx, flows[i], returned); err != nil {
		return access.Caller{}, kept, err
	}
	keep, err = encodeFlows(slices.Delete(flows, i, i+1))
	return caller, keep, err
}

func (s *SignIn) finish(ctx context.Context, f flow, returned url.Values) (access.Caller, error) {
	if failure := returned.Get("error"); failure != "" {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the identity provider refused: %.100q", failure)
	}
	p, err := s.discovery.provider(ctx)
	if err != nil {
		return access.Caller{}, err
	}
	ctx = oidc.ClientContext(ctx, s.discovery.client)
	tokens, err := s.oauth(p).Exchange(ctx, returned.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return access.Caller{}, s.refused(err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := s.keys.verify(ctx, s.cfg.ClientID, raw, "the token of the identity provider")
	if err != nil {
		return access.Caller{}, err
	}
	if subtle.ConstantTimeCompare([]byte(f.Nonce), []byte(token.Nonce)) != 1 {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token of the identity provider is for another sign-in: its nonce differs")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token of the identity provider: %w", err)
	}
	if s.cfg.value(claims) == nil {
		info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
		if err != nil { // the provider is at fault, not who signs in
			return access.Caller{}, agl.Errorf(agl.CodeUnavailable, "the identity provider %s lists groups neither in its token nor at its UserInfo endpoint: %w", s.cfg.Issuer, err)
		}
		claims = nil
		if err := info.Claims(&claims); err != nil || info.Subject != token.Subject {
			return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the UserInfo endpoint of the identity provider answered about %q, not about %q: %v", info.Subject, token.Subject, err)
		}
	}
	caller, err := s.cfg.caller(claims, token.Subject)
	caller.Groups = s.cfg.Grants.Known(s.cfg.groups(claims)...)
	return caller, err
}

// refused says why the provider has made no token of a code. It leaves out the body of the provider's answer, which may hold a
// secret.
func (s *SignIn) refused(err error) error {
	failed, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
		return agl.Errorf(agl.CodeUnavailable, "the identity provider %s: %w", s.cfg.Issuer, err)
	case failed.ErrorCode == "invalid_client" || failed.ErrorCode == "unauthorized_client":
		return agl.Errorf(agl.CodeUnavailable, "the identity provider does not accept this server as the client %q (%q): its operator must correct the client's id or secret", s.cfg.ClientID, failed.ErrorCode)
	case failed.Response.StatusCode >= http.StatusInternalServerError:
		return agl.Errorf(agl.CodeUnavailable, "the identity provider %s answered %s", s.cfg.Issuer, failed.Response.Status)
	}
	return agl.Errorf(agl.CodeUnauthorized, "the identity provider did not accept the code: %s %.100q", failed.Response.Status, failed.ErrorCode)
}
