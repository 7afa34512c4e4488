package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres"
)

// A database beside another one is made once, and is a store of its own.
func TestCreateDatabase(t *testing.T) {
	t.Parallel()
	base := server.Database(t)
	sibling, name, err := postgres.SiblingURL(base, "one-2")
	if err != nil || !strings.HasSuffix(name, "_one-2") {
		t.Fatal(name, err)
	}
	for range 2 { // the second time it exists
		if err := postgres.CreateDatabase(t.Context(), base, name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := server.Server(t).DropDatabase(context.WithoutCancel(t.Context()), sibling); err != nil {
			t.Error(err)
		}
	})
	engine, err := store.Open(t.Context(), sibling, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.WriteDocuments(t.Context(), agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{Kind: "k", ID: "1", Body: []byte("1")}}}); err != nil {
		t.Error(err)
	}
	if err := engine.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSiblingURL(t *testing.T) {
	t.Parallel()
	sibling, name, err := postgres.SiblingURL("postgres://u:p%40w@h:5/agl?sslmode=disable", "x")
	if err != nil || name != "agl_x" || sibling != "postgres://u:p%40w@h:5/agl_x?sslmode=disable" {
		t.Error(sibling, name, err)
	}
	for _, raw := range []string{"postgres://u:secret@h/", "postgres://u:secret@h/" + strings.Repeat("a", 70)} {
		if _, _, err := postgres.SiblingURL(raw, "x"); !errors.Is(err, agl.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
	if _, err := url.Parse(sibling); err != nil {
		t.Error(err)
	}
}
