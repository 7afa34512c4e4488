// Package oidc lets people sign in by an OpenID Connect provider (OpenID Connect Core 1.0, the authorization code flow with
// PKCE, RFC 7636), and machines by the tokens of one (JWT, RFC 7519). It maps groups to scopes. It knows no route and no cookie.
package oidc
