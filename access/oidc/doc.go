// Package oidc lets people sign in through an OpenID Connect provider (OpenID Connect Core 1.0, the authorization
// code flow with PKCE, RFC 7636), and accepts the tokens that a provider issues to machines (JWT, RFC 7519). It maps
// groups to scopes.
//
//	signIn, err := oidc.NewSignIn(oidc.SignInConfig{Config: cfg, ClientID: "agl", RedirectURL: url})
//	target, keep, err := signIn.Begin(ctx)            // send the browser to target, with keep in a cookie
//	caller, err := signIn.Finish(ctx, keep, query)    // when the browser has returned
//
// The package must not know routes and cookies.
package oidc
