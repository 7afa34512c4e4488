package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/access/oidc"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/rest/server"
)

// signInFlags say who else may call a store, besides its token and its keys.
type signInFlags struct {
	PublicURL        string         `name:"public-url" placeholder:"URL" help:"The URL by which browsers reach the store; --oidc-issuer needs it."`
	OIDCIssuer       string         `name:"oidc-issuer" placeholder:"URL" help:"Let people sign in to the dashboard by this OpenID Connect provider. Its redirect URI is the public URL with /v1/agl/login/oidc/callback."`
	OIDCClientID     string         `name:"oidc-client-id" placeholder:"ID" help:"The client that the provider knows the store as."`
	OIDCClientSecret flags.Token    `name:"oidc-client-secret" env:"AGL_OIDC_CLIENT_SECRET" placeholder:"SECRET" help:"The secret of this client. Default: none, for a public client."`
	OIDCScope        []string       `name:"oidc-scope" sep:"none" placeholder:"SCOPE" help:"Ask the provider for this scope, too, such as groups; repeat it for several."`
	OIDCGroup        []access.Grant `name:"oidc-group" sep:"none" placeholder:"GROUP=SCOPES" help:"What the members of a group may do, such as research=read,train; with @PROJECT at its end in one project only; repeat it for several."`
	JWTIssuer        string         `name:"jwt-issuer" placeholder:"URL" help:"Accept JWTs of this issuer as bearer tokens."`
	JWTAudience      string         `name:"jwt-audience" placeholder:"NAME" help:"The audience that they must have."`
	JWTKeys          string         `name:"jwt-keys" placeholder:"URL" help:"Where the keys of the issuer are (JWKS). Default: as its discovery document says."`
	JWTGroup         []access.Grant `name:"jwt-group" sep:"none" placeholder:"GROUP=SCOPES" help:"What the bearers of tokens with a group may do, as in --oidc-group."`
	GroupsClaim      string         `name:"groups-claim" default:"groups" placeholder:"CLAIM" help:"The claim that lists the groups; dots lead into objects, as in realm_access.roles."`
	TLSClient        []access.Grant `name:"tls-client" sep:"none" placeholder:"NAME=SCOPES" help:"What a client may do whose certificate has this name and is verified by --tls-client-ca: its first URI (spiffe://…), or its common name; repeat it for several."`
}

func (f *signInFlags) validate(token, clientCA string) error {
	_, err := f.signIn("", "", nil)
	if err == nil {
		_, err = f.tokens("", nil)
	}
	if err == nil && f.PublicURL != "" {
		_, err = f.public()
	}
	switch {
	case err != nil:
		return err
	case token == "" && (f.OIDCIssuer != "" || f.JWTIssuer != "" || len(f.TLSClient) > 0):
		return errors.New("--oidc-issuer, --jwt-issuer, --tls-client: a store without --token (or AGL_TOKEN) lets everybody in")
	case f.OIDCIssuer == "" && (f.OIDCClientID != "" || len(f.OIDCScope) > 0 || len(f.OIDCGroup) > 0):
		return errors.New("--oidc-client-id, --oidc-scope, --oidc-group: need --oidc-issuer")
	case f.JWTIssuer == "" && (f.JWTAudience != "" || f.JWTKeys != "" || len(f.JWTGroup) > 0):
		return errors.New("--jwt-audience, --jwt-keys, --jwt-group: need --jwt-issuer")
	case f.JWTIssuer == f.OIDCIssuer && f.JWTAudience == f.OIDCClientID && f.JWTIssuer != "":
		return fmt.Errorf("--jwt-audience=%s: must not be the client of --oidc-client-id: a token for the browser would be one for machines", f.JWTAudience)
	case len(f.TLSClient) > 0 && clientCA == "":
		return errors.New("--tls-client: needs --tls-client-ca, which verifies the certificates")
	}
	return nil
}

// public returns the public URL.
func (f *signInFlags) public() (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(f.PublicURL, "/"))
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("--public-url=%s: must be a URL such as https://agl.example.org", f.PublicURL)
	}
	return u, nil
}

// signIn returns how people sign in to a project, "" for the server's own store; nil if only
// by keys.
func (f *signInFlags) signIn(project, base string, transport http.RoundTripper) (server.SignIn, error) {
	if f.OIDCIssuer == "" {
		return nil, nil
	}
	public, err := f.public()
	if err != nil {
		return nil, err
	}
	grants := access.GrantsFor(project, f.OIDCGroup)
	if len(grants) == 0 && len(f.OIDCGroup) > 0 {
		return nil, nil // nobody may sign in here
	}
	s, err := oidc.NewSignIn(oidc.SignInConfig{
		Config:   oidc.Config{Issuer: f.OIDCIssuer, GroupsClaim: f.GroupsClaim, Grants: grants, Transport: transport},
		ClientID: f.OIDCClientID, ClientSecret: string(f.OIDCClientSecret), Scopes: f.OIDCScope,
		RedirectURL: public.String() + base + "/v1/agl/login/oidc/callback",
	})
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer, --oidc-client-id, --oidc-group: %w", err)
	}
	return s, nil
}

// tokens returns which tokens of machines are accepted in a project; nil if none are.
func (f *signInFlags) tokens(project string, transport http.RoundTripper) (access.Checker, error) {
	if f.JWTIssuer == "" {
		return nil, nil
	}
	grants := access.GrantsFor(project, f.JWTGroup)
	if len(grants) == 0 && len(f.JWTGroup) > 0 {
		return nil, nil
	}
	t, err := oidc.NewTokens(oidc.TokensConfig{
		Config:   oidc.Config{Issuer: f.JWTIssuer, GroupsClaim: f.GroupsClaim, Grants: grants, Transport: transport},
		Audience: f.JWTAudience, KeysURL: f.JWTKeys,
	})
	if err != nil {
		return nil, fmt.Errorf("--jwt-issuer, --jwt-audience, --jwt-group: %w", err)
	}
	return t, nil
}

// admit configures who else may call the server of a project. The settings are those of calls to the identity provider.
func (f *signInFlags) admit(config *server.Config, project, base string, settings *tls.Config) (err error) {
	var transport http.RoundTripper // the default
	if settings != nil {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings}
	}
	if config.SignIn, err = f.signIn(project, base, transport); err != nil {
		return err
	}
	if config.Tokens, err = f.tokens(project, transport); err != nil {
		return err
	}
	config.Certificates = access.GrantsFor(project, f.TLSClient)
	config.BasePath = base
	if f.PublicURL != "" {
		public, err := f.public()
		if err != nil {
			return err
		}
		config.PublicURL, config.BasePath = public.String()+base, public.Path+base
	}
	config.SecureCookies = config.SecureCookies || strings.HasPrefix(f.PublicURL, "https://")
	return nil
}
