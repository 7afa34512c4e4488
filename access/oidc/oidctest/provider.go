// Package oidctest runs an OpenID Connect provider for tests: the example server of github.com/zitadel/oidc, with
// users, groups and clients.
package oidctest

import (
	"cmp"
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"golang.org/x/oauth2/clientcredentials"
)

// ClientID and ClientSecret belong to the provider's web client. Password is that of all users and machines.
const (
	ClientID     = "agl"
	ClientSecret = "client-secret-canary"
	Password     = "verysecure"
	// Audience is the audience of machine tokens.
	Audience = "agl-store"
)

// Provider is a running provider.
type Provider struct {
	URL string
	// Asked returns the number of requests for a path.
	Asked func(path string) int
}

// Config lists the users of the provider, and says where it lists their groups.
type Config struct {
	Groups map[string][]string // by user name, which is also the subject
	// InIDToken puts groups into ID tokens; otherwise only the UserInfo endpoint lists them.
	InIDToken   bool
	RedirectURL string
	ClientID    string // of the web client, whose secret is ClientSecret; by default [ClientID]
}

// Start runs a provider until the test ends.
func Start(tb testing.TB, cfg Config) *Provider {
	tb.Helper()
	counted := &counter{paths: map[string]int{}}
	server := httptest.NewUnstartedServer(nil)
	issuer := "http://" + server.Listener.Addr().String()
	counted.next = NewHandler(issuer, cfg)
	server.Config.Handler = counted
	server.Start()
	tb.Cleanup(server.Close)
	return &Provider{URL: issuer, Asked: counted.of}
}

// NewHandler returns the handler of a provider whose issuer is the URL at which it is served.
func NewHandler(issuer string, cfg Config) http.Handler {
	users, id := &users{cfg}, cmp.Or(cfg.ClientID, ClientID)
	inner := storage.NewStorageWithClients(users, map[string]*storage.Client{id: storage.WebClient(id, ClientSecret, cfg.RedirectURL)})
	return exampleop.SetupServer(issuer, &keeper{inner, users}, nil, false)
}

// users implements storage.UserStore.
type users struct{ cfg Config }

func (u *users) GetUserByID(id string) *storage.User {
	if _, ok := u.cfg.Groups[id]; !ok {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: Password, Email: id + "@example.org", EmailVerified: true}
}
func (u *users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }
func (u *users) ExampleClientID() string                     { return "none" }

// keeper is the example's storage with groups, and with machines that have a password.
type keeper struct {
	*storage.Storage

	users *users
}

func (k *keeper) SetUserinfoFromScopes(ctx context.Context, info *oidc.UserInfo, userID, clientID string, scopes []string) error {
	info.Subject = userID
	return k.Storage.SetUserinfoFromScopes(ctx, info, userID, clientID, scopes)
}

func (k *keeper) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	subject := request.GetSubject()
	if k.users.cfg.InIDToken {
		info.AppendClaims("groups", k.users.cfg.Groups[subject])
		info.Email, info.EmailVerified = subject+"@example.org", true
	}
	info.Subject = subject // the claim sub is taken from here, whatever the scopes
	return k.Storage.SetUserinfoFromScopes(ctx, info, subject, request.GetClientID(), scopes)
}

func (k *keeper) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string) error {
	info.AppendClaims("groups", k.users.cfg.Groups[subject])
	return k.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin)
}

func (k *keeper) GetPrivateClaimsFromScopes(_ context.Context, userID, _ string, _ []string) (map[string]any, error) {
	return map[string]any{"groups": k.users.cfg.Groups[userID]}, nil
}

func (k *keeper) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	inner, err := k.Storage.GetClientByClientID(ctx, id)
	return &client{inner, k.users.cfg.InIDToken}, err
}

func (k *keeper) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	if user := k.users.GetUserByID(id); user == nil || secret != Password {
		return nil, oidc.ErrInvalidClient()
	}
	return &machine{Client: storage.WebClient(id, secret)}, nil
}

func (k *keeper) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: id, Audience: []string{Audience}, Scopes: scopes}, nil
}

// client is a web client that decides whether groups are in ID tokens.
type client struct {
	op.Client

	inIDToken bool
}

func (c *client) IDTokenUserinfoClaimsAssertion() bool { return c.inIDToken }

// machine is a client whose access tokens are JWTs.
type machine struct{ *storage.Client }

func (*machine) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (*machine) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeClientCredentials}
}

// MachineToken returns an access token of a machine.
func (p *Provider) MachineToken(tb testing.TB, name string) string {
	tb.Helper()
	asked := clientcredentials.Config{ClientID: name, ClientSecret: Password, TokenURL: p.URL + "/oauth/token", Scopes: []string{oidc.ScopeOpenID}}
	token, err := asked.Token(tb.Context())
	if err != nil {
		tb.Fatalf("no token for %s: %v", name, err)
	}
	return token.AccessToken
}

// Browser returns a client that keeps cookies and follows redirects.
func Browser(tb testing.TB) *http.Client {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// SignIn opens a page that redirects to the provider, enters a name and the password, and returns the response at the
// end of all redirects. The caller closes its body.
func (p *Provider) SignIn(tb testing.TB, browser *http.Client, page, name string) *http.Response {
	tb.Helper()
	return p.Enter(tb, browser, p.Open(tb, browser, page), name)
}

// Open opens a page that redirects to the provider, and returns where a name is to be entered.
func (p *Provider) Open(tb testing.TB, browser *http.Client, page string) *url.URL {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, page, nil)
	if err != nil {
		tb.Fatal(err)
	}
	opened, err := browser.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer opened.Body.Close()
	at := opened.Request.URL
	if !strings.HasPrefix(at.String(), p.URL+"/login/") {
		tb.Fatalf("the browser is at %s, not at the provider: %s", at, opened.Status)
	}
	return at
}

// Enter enters a name and the password on the page that Open has returned.
func (p *Provider) Enter(tb testing.TB, browser *http.Client, at *url.URL, name string) *http.Response {
	tb.Helper()
	form := url.Values{"username": {name}, "password": {Password}, "id": {at.Query().Get("authRequestID")}}
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, p.URL+at.Path, strings.NewReader(form.Encode()))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	back, err := browser.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	return back
}
