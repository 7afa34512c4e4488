package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

func TestParseDSN(t *testing.T) {
	t.Parallel()
	const url = "postgres://agl:s3cret@db:5432/agl?sslmode=disable"
	for name, want := range map[string]struct {
		dsn   store.DSN
		shown string
	}{
		"":                    {store.DSN{Kind: store.SQLite, Path: "agl.db"}, "sqlite:agl.db"},
		"memory:":             {store.DSN{Kind: store.Memory}, "memory:"},
		"sqlite:runs/a b.db":  {store.DSN{Kind: store.SQLite, Path: "runs/a b.db"}, "sqlite:runs/a b.db"},
		"sqlite:/var/lib/agl": {store.DSN{Kind: store.SQLite, Path: "/var/lib/agl"}, "sqlite:/var/lib/agl"},
		"sqlite:C:\\agl.db":   {store.DSN{Kind: store.SQLite, Path: "C:\\agl.db"}, "sqlite:C:\\agl.db"},
		url:                   {store.DSN{Kind: store.Postgres, URL: url}, "postgres://agl:xxxxx@db:5432/agl?sslmode=disable"},
		"postgres://agl:s3cret@a:5432,b:5432/agl": {
			store.DSN{Kind: store.Postgres, URL: "postgres://agl:s3cret@a:5432,b:5432/agl"}, "postgres://agl:xxxxx@a:5432,b:5432/agl",
		},
		"postgresql://db/agl": {store.DSN{Kind: store.Postgres, URL: "postgresql://db/agl"}, "postgresql://db/agl"},
		"postgres:///agl?host=/run/postgresql&password=x": {
			store.DSN{Kind: store.Postgres, URL: "postgres:///agl?host=/run/postgresql&password=x"},
			"postgres:///agl?host=%2Frun%2Fpostgresql&password=xxxxx",
		},
	} {
		dsn, err := store.ParseDSN(name)
		if err != nil || dsn != want.dsn {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", name, dsn, err, want.dsn)
		}
		if got := dsn.String(); got != want.shown {
			t.Errorf("%q is shown as %q, want %q", name, got, want.shown)
		}
	}
}

func TestParseDSNRefuses(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"postgres://db/agl?password=s3cret%": `got postgres://db/agl, which is not understood: invalid percent-encoded token in password`,
		"postgres://db:99999/agl":            `got postgres://db:99999/agl, its port 99999 must be 1 to 65535`,
		"agl.db":                             `got "agl.db", must be sqlite:PATH such as sqlite:agl.db, postgres://`,
		"/tmp/x":                             `for a file write "sqlite:/tmp/x"`,
		"memory":                             `got "memory", must be sqlite:PATH such as sqlite:agl.db, postgres://`,
		"sqlite":                             `got "sqlite", must be`,
		"postgres":                           `got "postgres", must be`,
		"sqlite:":                            `got "sqlite:" without a file`,
		"sqlite::memory:":                    "write memory: to keep nothing",
		"sqlite:///x.db":                     `write sqlite:PATH`,
		"sqlite:x.db?mode=ro":                `must be without "?"`,
		"memory:x":                           `got "memory:x", must be`,
		"mysql://agl:s3cret@db/agl":          `got "mysql://agl:xxxxx@db/agl", must be`,
		"postgres:agl":                       `got "postgres:agl", must be`,
		"postgres:agl:s3cret@db/agl":         `got "postgres:…", must be`,
		"postgres://agl:s3cret%@db/x":        `got "postgres:…", which is not a URL`,
		"postgres://agl:s3cret@db:x/y":       `got "postgres:…", which is not a URL`,
		"agl:s3cret@db/agl":                  `got "agl:…", must be`,
		"host=db password=s3cret":            `got "…", must be sqlite:PATH`,
		"password=s3cret":                    `got "…", must be sqlite:PATH`,
		"password=s3cret host=db:5432":       `got "…", must be`,
		"host=db password=s3cret@":           `got "…", must be`,
		"sqlite:x.db\n":                      "got the character U+000A, which no name of a database has",
		"postgres://agl:s3cret@db/agl\r\n":   "got the character U+000D, which no name of a database has",
	} {
		_, err := store.ParseDSN(name)
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): error is %v, want ErrInvalid with %q", name, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Parse(%q) tells the password: %v", name, err)
		}
	}
}
