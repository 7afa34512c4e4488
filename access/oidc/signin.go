package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

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
	return &SignIn{cfg: cfg, discovery: newDiscovery(&cfg.Config)}, nil
}

// Grants returns what groups may do.
func (s *SignIn) Grants() access.Grants { return s.cfg.Grants }

// flow is what a browser keeps while its user is at the provider.
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

// Begin returns the URL of the provider's page, and what the browser must keep for [SignIn.Finish]; no other browser
// may see it. The error is CodeUnavailable if the provider cannot be reached.
func (s *SignIn) Begin(ctx context.Context) (target, keep string, err error) {
	p, err := s.discovery.provider(ctx)
	if err != nil {
		return "", "", err
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	doc, err := json.Marshal(f)
	if err != nil {
		return "", "", err
	}
	return s.oauth(p).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), base64.RawURLEncoding.EncodeToString(doc), nil
}

// Finish returns who has signed in. returned holds the query parameters with which the provider sent the browser
// back. The error is CodeUnauthorized if nobody signed in, or somebody without any scope, and
// CodeUnavailable if the provider cannot be asked.
func (s *SignIn) Finish(ctx context.Context, keep string, returned url.Values) (access.Caller, error) {
	var f flow
	doc, err := base64.RawURLEncoding.DecodeString(keep)
	if err == nil {
		err = json.Unmarshal(doc, &f)
	}
	if err != nil || f.State == "" || subtle.ConstantTimeCompare([]byte(f.State), []byte(returned.Get("state"))) != 1 {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "this browser did not begin to sign in, or did so too long ago; begin again")
	}
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
	watched := &watchedTransport{base: cmp.Or(s.discovery.client.Transport, http.DefaultTransport)}
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: askTimeout, Transport: watched})
	// A provider that cannot be asked is at fault, not who signs in.
	unauthorized := func(format string, args ...any) error {
		if away := watched.failure(); away != nil {
			return agl.Errorf(agl.CodeUnavailable, "the identity provider %s: %w", s.cfg.Issuer, away)
		}
		return agl.Errorf(agl.CodeUnauthorized, format, args...)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := p.VerifierContext(ctx, &oidc.Config{ClientID: s.cfg.ClientID, SupportedSigningAlgs: algorithms}).Verify(ctx, raw)
	if err != nil {
		return access.Caller{}, unauthorized("the token of the identity provider: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(f.Nonce), []byte(token.Nonce)) != 1 {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token of the identity provider is for another sign-in: its nonce differs")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token of the identity provider: %w", err)
	}
	if !s.cfg.hasGroups(claims) {
		info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
		if err != nil {
			return access.Caller{}, unauthorized("the identity provider lists groups neither in its token nor at its UserInfo endpoint: %w", err)
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

// watchedTransport remembers whether a provider has failed, because those who ask it for keys keep only the text of an error.
type watchedTransport struct {
	base http.RoundTripper

	mu     sync.Mutex
	failed error
}

func (w *watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.base.RoundTrip(r)
	failed := err
	if err == nil && (resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusNotFound) {
		failed = fmt.Errorf("%s answered %s", r.URL.Redacted(), resp.Status)
	}
	if failed != nil {
		w.mu.Lock()
		w.failed = failed
		w.mu.Unlock()
	}
	return resp, err
}

func (w *watchedTransport) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
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
