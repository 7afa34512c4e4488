package client

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/secret"
)

// tokenFileEvery is how often a token's file is read again. A workload identity replaces its token minutes before the old one expires.
const tokenFileEvery = 10 * time.Second

// tokenFile is a file with a token that is replaced before it expires.
type tokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	token  string
	looked time.Time
	failed bool // it could not be read when it was looked at last; that is logged
}

// ReadTokenFile returns the token that a file has now, see [Config.TokenFile]: CodeInvalid.
func ReadTokenFile(path string) (string, error) {
	f, err := openTokenFile(path, nil)
	if err != nil {
		return "", err
	}
	return f.token, nil
}

// openTokenFile reads a file for the first time: CodeInvalid.
func openTokenFile(path string, log *slog.Logger) (*tokenFile, error) {
	f := &tokenFile{path: path, log: log, looked: time.Now()}
	token, err := f.read()
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "the token's file: %w", err)
	}
	f.token = token
	return f, nil
}

// current returns the file's token, and while the file cannot be read the last one.
func (f *tokenFile) current() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < tokenFileEvery {
		return f.token
	}
	f.looked = time.Now()
	token, err := f.read()
	switch {
	case err == nil:
		f.token, f.failed = token, false
	case !f.failed:
		f.failed = true
		f.log.Warn("the token's file cannot be read; the last token is used until it can", "error", err)
	}
	return f.token
}

// replaced reads the file again and reports whether its token is another one than that of a request, which was refused: a long poll
// outlives the token that it began with.
func (f *tokenFile) replaced(authorization string) bool {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
	return bearer(f.current()) != authorization
}

// read returns what is in the file, without line breaks at its end.
func (f *tokenFile) read() (string, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(data), "\r\n")
	if token == "" {
		return "", errors.New(f.path + ": is empty")
	}
	return token, secret.Check(f.path, token)
}
