// Package access says who may do what: keys, their scopes, and who made a request.
//
// A key is agl_{id}_{secret}. A store keeps only its SHA-256, as an [agl.Document]; the secret has 260 random bits,
// so a slow hash would add nothing. Every route of every server declares the [Scope]s of which a caller needs one. A
// route that declares none is refused.
//
//	keys := access.NewKeys(documents)
//	created, err := keys.Create(ctx, access.NewKey{Name: "runner", Scopes: access.Runner})
//	caller, err := keys.Check(ctx, created.Text)
//	err = caller.Allow(access.Read | access.Runner)
//
// The package reads HTTP headers and knows no routes. It must not know which server it protects.
package access
