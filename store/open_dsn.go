package store

import (
	"net/url"
	"strings"
	"unicode"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/homedir"
	"github.com/agl-go/agl/store/postgres"
)

// Kind is a kind of database.
type Kind string

// The kinds of databases.
const (
	Memory   Kind = "memory"
	SQLite   Kind = "sqlite"
	Postgres Kind = "postgres"
)

// DefaultDSN is the database of agl store, and of [Open] without a name: a file in the working directory.
const DefaultDSN = "sqlite:agl.db"

const allowedDSN = `must be sqlite:PATH such as sqlite:agl.db, postgres://USER:PASSWORD@HOST/DATABASE, or memory: (which loses everything with its process)`

// DSN is a parsed name of a database, see [ParseDSN].
type DSN struct {
	Kind Kind
	Path string // of SQLite's file, absolute or relative to the working directory
	URL  string // of PostgreSQL, with its secrets
}

// ParseDSN reads the name of a database: "memory:", "sqlite:PATH",
// "postgres://…" or "postgresql://…". The empty name is [DefaultDSN]. The error,
// ErrInvalid, shows the name without its secrets and says what is allowed. The URL of
// a PostgreSQL database is checked as [postgres.CheckURL] does.
func ParseDSN(name string) (DSN, error) {
	if name == "" {
		name = DefaultDSN
	}
	if i := strings.IndexFunc(name, unicode.IsControl); i >= 0 { // as the line break at the end of a secret's file
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got the character %U, which no name of a database has; leave it out, also a line break at the end", []rune(name[i:])[0])
	}
	scheme, rest, found := strings.Cut(name, ":")
	switch {
	case found && scheme == string(Memory) && rest == "":
		return DSN{Kind: Memory}, nil
	case found && scheme == string(SQLite):
		return parseFile(name, rest)
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return parseURL(name)
	case !found && !strings.ContainsAny(name, "@= "):
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, %s; for a file write %q", name, allowedDSN, string(SQLite)+":"+name)
	}
	return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, %s", redact(name), allowedDSN)
}

func parseFile(name, path string) (DSN, error) {
	switch {
	case path == "":
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q without a file, %s", name, allowedDSN)
	case strings.HasPrefix(path, "//"):
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, which could name two files; write sqlite:PATH with a path such as agl.db or /var/lib/agl.db", name)
	case strings.Contains(path, ":memory:"):
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, write memory: to keep nothing", name)
	case strings.ContainsAny(path, "?\x00"): // these look like the options of a URI
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, the path must be without %q and zero bytes", name, "?")
	}
	path, err := homedir.Expand(path)
	if err != nil {
		return DSN{}, agl.Errorf(agl.CodeInvalid, "the file of %s: %w", name, err)
	}
	return DSN{Kind: SQLite, Path: path}, nil
}

func parseURL(name string) (DSN, error) {
	u, err := url.Parse(name)
	if err != nil { // err repeats the secrets
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, which is not a URL (special characters of a password are written %%XX), %s", redact(name), allowedDSN)
	}
	// A host may come from the query (a socket's directory) or from PGHOST.
	if u.Opaque != "" || !strings.HasPrefix(name[len(u.Scheme):], "://") {
		return DSN{}, agl.Errorf(agl.CodeInvalid, "got %q, %s", redact(name), allowedDSN)
	}
	if err := postgres.CheckURL(name); err != nil {
		return DSN{}, err
	}
	return DSN{Kind: Postgres, URL: name}, nil
}

// String is the name without its secrets.
func (d DSN) String() string {
	switch d.Kind {
	case SQLite:
		return string(SQLite) + ":" + d.Path
	case Postgres:
		return redact(d.URL)
	case Memory:
	}
	return string(Memory) + ":"
}

// redact hides the secrets of a name that may be a URL.
func redact(name string) string {
	u, err := url.Parse(name)
	scheme, _, _ := strings.Cut(name, ":")
	switch {
	case strings.Contains(scheme, "="): // libpq's other form: host=db password=…
		return "…"
	case err != nil || u.Host == "" && strings.Contains(name, "@"):
		return scheme + ":…"
	case u.Host == "" && u.RawQuery == "":
		return name
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // what does not parse may be a password
		u.RawQuery = "…"
		return u.Redacted()
	}
	for key := range query {
		if strings.Contains(strings.ToLower(key), "pass") {
			query.Set(key, "xxxxx")
			u.RawQuery = query.Encode()
		}
	}
	return u.Redacted()
}
