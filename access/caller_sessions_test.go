package access_test

import (
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// What the groups of somebody may do is what the server says now, not what it said when the session began.
func TestSessionsHaveTheScopesOfTheirGroups(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	was := access.Grants{"research": access.Read, "platform": access.Admin}
	begin := func(groups ...string) string {
		text, _, err := access.NewSessions(store, nil, "token", was).Begin(t.Context(), &access.Caller{Name: "oidc:ana", Scopes: was.Of(groups...), Groups: was.Known(groups...)})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	both, one := begin("research", "platform", "others"), begin("platform")
	older, _, err := access.NewSessions(store, nil, "token", was).Begin(t.Context(), &access.Caller{Name: "oidc:bea", Scopes: access.Admin})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := access.NewSessions(store, nil, "token", was).Check(t.Context(), older); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("a session of a version that kept no groups: %v", err)
	}
	caller := access.Root()
	root, _, err := access.NewSessions(store, nil, "token", was).Begin(t.Context(), &caller)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now             access.Grants
		both, one, root access.Scope // 0: the session is over
	}{
		"as before":            {was, access.Read | access.Admin, access.Admin, access.Any},
		"a group less":         {access.Grants{"research": access.Read}, access.Read, 0, access.Any},
		"other scopes":         {access.Grants{"research": access.Read, "platform": access.Train}, access.Read | access.Train, access.Train, access.Any},
		"a group more":         {access.Grants{"research": access.Read, "others": access.Admin}, access.Read, 0, access.Any},
		"without the provider": {nil, 0, 0, access.Any},
	} {
		now := access.NewSessions(store, nil, "token", c.now)
		for text, want := range map[string]access.Scope{both: c.both, one: c.one, root: c.root} {
			caller, err := now.Check(t.Context(), text)
			if caller.Scopes != want || (agl.ErrorCode(err) == agl.CodeUnauthorized) != (want == 0) {
				t.Errorf("%s: got the scopes %s, %v, want %s", name, caller.Scopes, err, want)
			}
		}
	}
	// Who signs out while the groups have no scopes is signed out for good.
	if err := access.NewSessions(store, nil, "token", nil).End(t.Context(), one); err != nil {
		t.Error(err)
	}
	if _, err := access.NewSessions(store, nil, "token", was).Check(t.Context(), one); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("after signing out: %v", err)
	}
}

// A key keeps its scopes in a session whatever its name is.
func TestSessionsOfKeys(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	sessions := access.NewSessions(store, keys, "token", nil)
	for _, name := range []string{"ci", "oidc:ci"} {
		created, err := keys.Create(t.Context(), access.NewKey{Name: name, Scopes: access.Train})
		if err != nil {
			t.Fatal(err)
		}
		caller, err := keys.Check(t.Context(), created.Text)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := sessions.Begin(t.Context(), &caller)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sessions.Check(t.Context(), text); err != nil || got.KeyID != created.ID || got.Scopes != access.Train {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}
