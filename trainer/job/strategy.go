package job

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/trainer/keys"
)

// database is where the run is stored, in the form of trainer.Config.
func (c Config) database(outDir string) string {
	switch {
	case c.File.Store.URL != "":
		return ""
	case c.File.Store.Database != "":
		return c.File.Store.Database
	default:
		return "sqlite:" + filepath.Join(outDir, keys.DatabaseFile)
	}
}

// sharesStore reports whether other runs can use the run's store at the same time. A file of SQLite has one user.
func (c Config) sharesStore() bool {
	return c.File.Store.URL != "" || strings.HasPrefix(c.File.Store.Database, "postgres")
}

// strategy places the sides of the run: runners in this process, and in others that
// reach the store. It returns the URL of the store for agents.
func (c Config) strategy(ctx context.Context, token string) (s execution.ClientServer, storeURL string, err error) {
	s = execution.ClientServer{
		Config: execution.Config{Role: c.Role, Token: token}, TLS: c.TLS, InProcess: true, GracefulTimeout: c.drainTimeout(), Logger: c.Logger,
	}
	if c.File.Store.URL != "" {
		s.StoreURL, s.ExternalStore = c.storeURL(), true
		return s, s.StoreURL, nil
	}
	address := c.File.Store.Listen
	switch {
	case address != "":
	case c.Role == execution.RoleAlgorithm:
		address = defaultStoreListen
	default:
		address = loopbackListen
	}
	if s.Listener, err = httpserver.Listen(ctx, address, "name another, such as 127.0.0.1:0 for a free port"); err != nil {
		return s, "", fmt.Errorf("store.listen: %w", err)
	}
	if tls := c.File.Store.TLS; tls.Cert != "" {
		encrypted, err := httpserver.TLS{CertFile: tls.Cert, KeyFile: tls.Key}.Listener(s.Listener, c.Logger)
		if err != nil {
			return s, "", agl.Errorf(agl.CodeInvalid, "store.tls_cert: %w", errors.Join(err, s.Listener.Close()))
		}
		s.Listener = encrypted
	}
	return s, execution.ClientURL(s.Listener), nil
}

// closeListener closes the listener of a strategy that is not executed.
func closeListener(s execution.ClientServer) error {
	if s.Listener == nil {
		return nil
	}
	return s.Listener.Close()
}
