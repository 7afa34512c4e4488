package flags

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer/keys"
)

// Store has the flags of a command that uses a store server. The variable tokenfor is empty, or says what else the token is for.
type Store struct {
	StoreURL URL   `name:"store" default:"http://localhost:4747" env:"AGL_STORE_URL" help:"Base URL of the store."`
	Token    Token `env:"AGL_TOKEN" placeholder:"TOKEN" help:"The store's bearer token.${tokenfor}"`

	TokenFile string `type:"home" env:"AGL_TOKEN_FILE" placeholder:"FILE" help:"In place of --token: a file with the token, which is read again every ten seconds."`

	Trust
}

// StoreOrRun has the flags of a command that uses a store server, or reads the store of a run. The variable
// order is empty, or says that the folder may come before the other arguments.
type StoreOrRun struct {
	Store

	Folder string `arg:"" optional:"" help:"Folder of a run, whose store is read; no server is needed.${order}"`
}

// retryTimeout is how long a command retries to reach a store while a person waits.
const retryTimeout = 1 * time.Second

// Flag returns " --store URL", to be appended to a command that shall use the same store, or "" if the command uses it without a flag.
func (f *Store) Flag() string {
	if string(f.StoreURL) == cmp.Or(os.Getenv("AGL_STORE_URL"), "http://localhost:4747") {
		return ""
	}
	return " --store " + secret.RedactURL(string(f.StoreURL))
}

// Open returns a client of the store and a function that closes it.
func (f *Store) Open(context.Context) (store agl.Store, closeStore func(), err error) {
	client, err := f.Client()
	if err != nil {
		return nil, nil, err
	}
	// Closing a client only drops idle connections: it cannot fail.
	return client, func() { _ = client.Close() }, nil
}

// Config returns what a client of the store needs. A flag counts for more than the environment.
func (f *Store) Config() (client.Config, error) {
	config := client.Config{URL: string(f.StoreURL), Token: string(f.Token), TokenFile: f.TokenFile}
	if config.Token != "" && config.TokenFile != "" {
		tokenGiven, fileGiven := config.Token != os.Getenv("AGL_TOKEN"), config.TokenFile != os.Getenv("AGL_TOKEN_FILE")
		switch {
		case tokenGiven && fileGiven:
			return config, errors.New("--token and --token-file: give one of them")
		case !tokenGiven && !fileGiven:
			return config, errors.New("AGL_TOKEN and AGL_TOKEN_FILE: both are set; unset one of them, or give a flag")
		case tokenGiven:
			config.TokenFile = ""
		default:
			config.Token = ""
		}
	}
	var err error
	config.TLS, err = f.TLS()
	return config, err
}

// Client returns a client of the store, which the caller closes.
func (f *Store) Client() (*client.Client, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	config.RetryTimeout = retryTimeout
	return client.New(config)
}

// Open opens the store in the folder of the run, or, without a folder, that of the flags.
func (f *StoreOrRun) Open(ctx context.Context) (store agl.Store, closeStore func(), err error) {
	if f.Folder == "" {
		return f.Store.Open(ctx)
	}
	return openRun(ctx, f.Folder)
}

// ReadsFolder reports whether Open opens the store in a folder.
func (f *StoreOrRun) ReadsFolder() bool { return f.Folder != "" }

// openRun opens the store in the folder of a run.
func openRun(ctx context.Context, folder string) (agl.Store, func(), error) {
	if strings.Contains(folder, "://") {
		return nil, nil, fmt.Errorf("got %s where the folder of a run may stand: the URL of a store is given with --store", folder)
	}
	file := filepath.Join(folder, keys.DatabaseFile)
	if err := checkRunFolder(folder, file); err != nil {
		return nil, nil, fmt.Errorf("%s is not the folder of a run with a store of its own: %w", folder, err)
	}
	opened, err := store.Open(ctx, "sqlite:"+file, store.Options{})
	closed := func() { _ = opened.Close(context.WithoutCancel(ctx)) } // it has only been read
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return openCopy(ctx, file)
	case errors.Is(err, agl.ErrIllegalState):
		return nil, nil, fmt.Errorf("%w\nif the run is under way, use its server instead of the folder: --store with the URL that the run has printed", err)
	case err != nil:
		return nil, nil, err
	}
	return opened, closed, nil
}

// openCopy opens a copy of a database whose folder is read-only: opening the database itself would write to the folder.
func openCopy(ctx context.Context, file string) (_ agl.Store, _ func(), err error) {
	dir, err := os.MkdirTemp("", "agl-copy-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) } // where the system cleans up, too
	defer func() {
		if err != nil {
			remove()
		}
	}()
	copied := filepath.Join(dir, filepath.Base(file))
	for _, part := range []string{"", "-wal"} {
		if err := copyFile(copied+part, file+part); err != nil && (part == "" || !errors.Is(err, fs.ErrNotExist)) {
			return nil, nil, err
		}
	}
	opened, err := store.Open(ctx, "sqlite:"+copied, store.Options{})
	if err != nil {
		return nil, nil, err
	}
	return opened, func() {
		_ = opened.Close(context.WithoutCancel(ctx))
		remove()
	}, nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// checkRunFolder says what keeps a folder from being that of a run with the database.
func checkRunFolder(folder, database string) error {
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such folder; name the one that agl train has printed, such as runs/agl")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is a file; name the folder that agl train has printed, such as runs/agl")
	}
	_, err = os.Stat(database)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it has no %s; the store of a run that names another one in its run file is read with --store", filepath.Base(database))
	}
	return err
}

// Order exchanges the folder and another argument, if the folder was given first. If it is the only one, the other
// gets the value absent; what says in errors what the other is.
func (f *StoreOrRun) Order(other *string, absent, what string) error {
	switch {
	case !isFolder(*other):
		return nil
	case isFolder(f.Folder):
		return fmt.Errorf("%s and %s are both folders; give one run, and a %s", *other, f.Folder, what)
	}
	*other, f.Folder = cmp.Or(f.Folder, absent), *other
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// notOfStore reports whether Wrap returns an error as it is: nil, an interrupt, or an error of standard output.
func notOfStore(err error) bool {
	_, ofOutput := errors.AsType[*console.OutputError](err)
	return err == nil || ofOutput || errors.Is(err, context.Canceled)
}

// Wrap names the store in an error of a call to it.
func (f *Store) Wrap(err error) error {
	if notOfStore(err) {
		return err
	}
	hint := ""
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown && f.CA == "" {
		hint = "\ngive the CA of its certificate by --ca or AGL_CA"
	}
	if _, inURL := client.SplitURL(string(f.StoreURL)); f.Token == "" && f.TokenFile == "" && inURL == "" && agl.ErrorCode(err) == agl.CodeUnauthorized {
		hint = "\ngive it by --token or AGL_TOKEN"
	}
	return fmt.Errorf("store %s: %w%s", secret.RedactURL(string(f.StoreURL)), err, hint)
}

// Wrap names the store in an error of a call to it.
func (f *StoreOrRun) Wrap(err error) error {
	switch {
	case notOfStore(err):
		return err
	case f.Folder != "":
		return fmt.Errorf("store of %s: %w", f.Folder, err)
	case agl.ErrorCode(err) == agl.CodeUnavailable:
		return fmt.Errorf("%w\na run of agl train is read without a server when its folder is given, such as runs/agl; agl store starts a server", f.Store.Wrap(err))
	}
	return f.Store.Wrap(err)
}

// URL is the base URL of a server.
type URL string

// UnmarshalText reads a URL.
func (u *URL) UnmarshalText(text []byte) error {
	parsed, err := url.Parse(string(text))
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return fmt.Errorf("got %q, must be an http or https URL such as http://localhost:4747", secret.RedactURL(string(text)))
	}
	if _, err := secret.ParseURL(string(text)); err != nil {
		return fmt.Errorf("got %q: %w", secret.RedactURL(string(text)), err)
	}
	if strings.HasSuffix(strings.TrimRight(parsed.Path, "/"), "/v1/agl") {
		return fmt.Errorf("got %q, must be the server's address without /v1/agl", secret.RedactURL(string(text)))
	}
	*u = URL(text)
	return nil
}

// Token is the bearer token of a server.
type Token string

// Check refuses what no header can carry. The error does not show the token.
func (t Token) Check() error { return secret.Check("the token", string(t)) }

// Model is a model's name and the base URL of its backend, given as NAME=URL.
type Model struct {
	Name string
	URL  URL
}

// UnmarshalText reads a model.
func (m *Model) UnmarshalText(text []byte) error {
	name, address, found := strings.Cut(string(text), "=")
	if !found || name == "" || address == "" {
		return fmt.Errorf("got %q, must be NAME=BACKEND_URL such as qwen=http://localhost:8000/v1", secret.RedactURL(string(text)))
	}
	m.Name = name
	if err := m.URL.UnmarshalText([]byte(address)); err != nil {
		return fmt.Errorf("model %s: %w", name, err)
	}
	return nil
}

// Database names a database, such as sqlite:agl.db.
type Database struct {
	store.DSN

	Name string // with its secrets
}

// UnmarshalText reads a name.
func (d *Database) UnmarshalText(text []byte) (err error) {
	d.Name = string(text)
	d.DSN, err = store.ParseDSN(d.Name)
	return err
}
