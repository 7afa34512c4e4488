package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/trainer/tracker"
)

// Store asks a store server for its statistics and for the runs that are under way there.
func (d *Doctor) Store(ctx context.Context, to client.Config) {
	about, err := d.ask(ctx, to)
	shown := secret.RedactURL(to.URL)
	switch {
	case errors.Is(err, agl.ErrUnauthorized):
		d.Addf("store", Fail, "set AGL_TOKEN to the token that the store was started with", "%s answers, but does not accept the token: %v", shown, err)
	case httpserver.Untrusted(err):
		d.Addf("store", Fail, trustRemedy(err), "%s: %v", shown, err)
	case err != nil && strings.Contains(err.Error(), "HTTP request to an HTTPS server"): // net/http says so in an answer
		d.Addf("store", Fail, "write https:// in its URL", "%s: %v", shown, err)
	case err != nil:
		d.Addf("store", Fail, "start one there with agl store, or name another", "%s: %v", shown, err)
	default:
		d.Addf("store", OK, "", "%s answers and accepts the token; it holds %s", shown, console.Count(about.stats.TotalRollouts, "rollout"))
		d.underWay(to.URL, about)
	}
}

// underWay adds what there is to know about the runs of a store that keep another one from it. Nothing is wrong with them.
func (d *Doctor) underWay(url string, about storeInfo) {
	if about.runsErr != nil {
		d.Addf("run under way", Warn, "see the error", "unknown, the store does not tell its runs: %v", about.runsErr)
	}
	for i := range about.runs {
		run, what := &about.runs[i], ""
		for _, s := range []string{run.Name, run.Algorithm} {
			if s != "" {
				what += ", " + s
			}
		}
		if name := projectOf(url); name != "" {
			what += ", project " + name
		}
		d.Addf("run under way", OK, "", "%s%s; last heard from %s ago; until it ends agl train refuses another one in this store",
			run.RunID, what, max(about.time.Sub(run.UpdateTime.Time()), 0).Round(time.Second))
	}
}

// projectOf returns the name of the project that a store's URL ends with, or "".
func projectOf(store string) string {
	u, err := url.Parse(store)
	if err != nil {
		return ""
	}
	parent, name := path.Split(strings.TrimRight(u.Path, "/"))
	if !strings.HasSuffix(parent, project.Prefix) {
		return ""
	}
	return name
}

// trustRemedy is for a server with which no TLS connection can be made.
func trustRemedy(err error) string {
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "write http:// in its URL, or start it with a certificate"
	case invalid.Reason == x509.Expired:
		return "replace its certificate, or set the clock of this machine"
	case strings.Contains(err.Error(), "remote error"):
		return "give a certificate that it accepts with --client-cert (or AGL_CLIENT_CERT)"
	}
	return giveCA
}

const giveCA = "give the CA of its certificate with --ca (or AGL_CA), and use a name that the certificate has"

// storeInfo is what a store says of itself.
type storeInfo struct {
	stats   agl.Statistics
	runs    []agl.Run // those under way that keep another one from the store
	runsErr error     // why it did not say which; nil for a store that keeps no runs
	time    time.Time // when it was asked
}

// ask asks a store for its health, which needs no token, and for the rest, which may need one.
func (d *Doctor) ask(ctx context.Context, to client.Config) (about storeInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	to.TLS, to.RetryTimeout = d.cfg.TLS, -1
	client, err := client.New(to)
	if err != nil {
		return storeInfo{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.Health(ctx); err != nil {
		return storeInfo{}, err
	}
	if err := client.Ready(ctx); errors.Is(err, agl.ErrUnimplemented) { // agl runner and agl proxy refuse it, too
		return storeInfo{}, err
	}
	if about.stats, err = client.Statistics(ctx); err != nil {
		return storeInfo{}, err
	}
	about.time = time.Now()
	if about.runs, about.runsErr = tracker.UnderWay(ctx, client, about.time); errors.Is(about.runsErr, agl.ErrUnimplemented) || errors.Is(about.runsErr, agl.ErrNotFound) {
		about.runsErr = nil // an older store
	}
	return about, nil
}

// The default addresses of the commands of this program.
const (
	defaultStoreURL = "http://localhost:4747"
	storeAddress    = "127.0.0.1:4747"
	proxyAddress    = "127.0.0.1:4748"
)

// Defaults checks the store and the ports that commands use by default. to has the token of the store.
func (d *Doctor) Defaults(ctx context.Context, to client.Config) {
	to.URL = defaultStoreURL
	if _, err := d.ask(ctx, to); err == nil || errors.Is(err, agl.ErrUnauthorized) {
		d.Store(ctx, to)
	} else {
		d.Addf("store", Warn, "agl store starts one; agl train needs none, it starts its own", "there is none at %s", defaultStoreURL)
		d.port(ctx, "port of agl store", storeAddress, Warn)
	}
	d.port(ctx, "port of agl proxy", proxyAddress, Warn)
}

// port tries to listen on an address; state is the verdict if it is not free.
func (d *Doctor) port(ctx context.Context, check, address string, state Verdict) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		err = listener.Close()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		d.Addf(check, state, "stop the program that uses it, or choose another", "%s is in use", address)
	case err != nil:
		d.Addf(check, state, "choose an address of this machine", "%v", err)
	default:
		d.Addf(check, OK, "", "%s is free", address)
	}
}

// database checks a database without creating or changing anything.
func (d *Doctor) database(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	dsn, err := store.ParseDSN(name)
	if err != nil {
		d.Addf("database", Fail, "change store.db", "%v", err)
		return
	}
	switch dsn.Kind {
	case store.Memory:
		d.Addf("database", Warn, "name a file in store.db to keep the run", "in memory: everything is lost when the run ends")
		return
	case store.SQLite:
		if _, err := os.Stat(dsn.Path); errors.Is(err, fs.ErrNotExist) {
			d.writable("database", dsn.Path, dsn.String())
			return
		}
	case store.Postgres:
	}
	status, err := readStatus(ctx, name)
	switch {
	case err != nil:
		d.Addf("database", Fail, "see the error, and check store.db", "%s: %v", dsn, err)
	case status.SchemaVersion > status.KnownVersion:
		d.Addf("database", Fail, "upgrade agl", "%s: its schema is %d, this program knows up to %d", dsn, status.SchemaVersion, status.KnownVersion)
	case status.InUse && dsn.Kind == store.SQLite:
		d.Addf("database", Fail, "stop the program that uses it, or give the URL of its store in store.url", "%s is in use", dsn)
	default:
		d.Addf("database", OK, "", "%s opens; it holds %s", dsn, console.Count(status.Contents.TotalRollouts, "rollout"))
	}
}

func readStatus(ctx context.Context, name string) (status driver.DatabaseStatus, err error) {
	db, err := store.OpenDatabase(ctx, name)
	if err != nil {
		return driver.DatabaseStatus{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Status(ctx)
}
