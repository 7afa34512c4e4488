package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/backend"
	"github.com/agl-go/agl/trainer/runfile"
)

// run looks at what a run needs; keeping says whether the store is the file's.
func (d *doctor) run(ctx context.Context, f *runfile.File, keeping bool) {
	d.agent(f)
	d.data(f)
	d.engine(ctx, f)
	d.models(ctx, f)
	if keeping {
		d.keeping(ctx, f)
	}
	if f.Store.Listen != "" {
		d.port(ctx, "store.listen", f.Store.Listen, fails)
	}
	if f.Proxy != nil && f.Proxy.Listen != "" {
		d.port(ctx, "proxy.listen", f.Proxy.Listen, fails)
	}
	d.writable("output", f.Output, f.Output)
}

// agent says which program it is; that it is there has been seen when the file
// was read.
func (d *doctor) agent(f *runfile.File) {
	if len(f.Agent.Process.Command) == 0 {
		d.addf("agent", fine, "", "none in this process: runners elsewhere do the tasks")
		return
	}
	path, err := exec.LookPath(f.Agent.Process.Command[0])
	if err != nil {
		d.addf("agent", fails, "install it, or name another in agent.command", "%v", err)
		return
	}
	d.addf("agent", fine, "", "%s is %s", f.Agent.Process.Command[0], path)
}

// data reads all the tasks.
func (d *doctor) data(f *runfile.File) {
	for _, part := range []struct {
		name  string
		tasks *runfile.Tasks
	}{{"data.train", f.Data.Train}, {"data.val", f.Data.Val}} {
		if part.tasks == nil {
			continue
		}
		n, err := countTasks(part.tasks)
		switch {
		case err != nil:
			d.addf(part.name, fails, "mend the file; this is its first mistake", "%v", err)
		case n == 0:
			d.addf(part.name, fails, "put a task into it", "%s is empty", part.tasks.Path)
		case part.name == "data.train" && f.Data.ValShare > 0 && n == 1:
			d.addf(part.name, fails, "add tasks, or leave out data.val_share", "%s has 1 task, of which none can be taken for validation", part.tasks.Path)
		case part.tasks.Limit > 0 && part.tasks.Limit < n:
			d.addf(part.name, fine, "", "%s, of which %d are used", count(n, "task"), part.tasks.Limit)
		default:
			d.addf(part.name, fine, "", "%s", count(n, "task"))
		}
	}
}

func countTasks(t *runfile.Tasks) (n int, err error) {
	reader, err := dataset.Open(t.Path, t.Options)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for _, err := range reader.Records() {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// models tries every backend that the run calls.
func (d *doctor) models(ctx context.Context, f *runfile.File) {
	if f.Proxy != nil {
		d.secret("proxy.key_secret", f.Proxy.Config.KeySecret)
		for i, model := range f.Proxy.Config.Models {
			if d.secret(fmt.Sprintf("proxy.models[%d].api_key", i), model.APIKey) {
				d.model(ctx, "model "+model.Name, model)
			}
		}
	}
	if f.Algorithm.APO == nil {
		return
	}
	d.critic(ctx, "gradient_model", &f.Algorithm.APO.Gradient)
	d.critic(ctx, "edit_model", f.Algorithm.APO.Edit)
}

// critic tries a model that optimises prompts, unless it is one of the proxy's.
func (d *doctor) critic(ctx context.Context, name string, e *apo.EndpointConfig) {
	if e == nil || e.BaseURL == "" || !d.secret("algorithm.apo."+name+".api_key", e.APIKey) {
		return
	}
	d.model(ctx, name, proxy.Model{Name: e.Model, BaseURL: e.BaseURL, APIKey: e.APIKey, TextOnly: true})
}

// keeping looks at where the run is kept.
func (d *doctor) keeping(ctx context.Context, f *runfile.File) {
	if !d.secret("store.token", f.Store.Token) {
		return
	}
	token := d.token
	if name, ok := strings.CutPrefix(f.Store.Token, "env:"); ok {
		token = os.Getenv(name)
	}
	switch {
	case f.Store.URL != "":
		d.store(ctx, f.Store.URL, token)
	case f.Store.Database != "":
		d.database(ctx, f.Store.Database)
	default:
		d.database(ctx, string(backend.SQLite)+":"+filepath.Join(f.Output, "agl.db"))
	}
}

// store asks a store that runs elsewhere.
func (d *doctor) store(ctx context.Context, url, token string) {
	stats, err := d.ask(ctx, url, token)
	shown := redactURL(url)
	switch {
	case errors.Is(err, agl.ErrUnauthorized):
		d.addf("store", fails, "set AGL_TOKEN to the token that the store was started with", "%s answers, but does not take the token: %v", shown, err)
	case err != nil:
		d.addf("store", fails, "start one there with agl store, or name another", "%s: %v", shown, err)
	default:
		d.addf("store", fine, "", "%s answers and takes the token; it holds %s", shown, count(stats.TotalRollouts, "rollout"))
	}
}

// ask asks a store for its health, which needs no token, and for more, which
// may.
func (d *doctor) ask(ctx context.Context, url, token string) (stats agl.Statistics, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	client, err := rest.NewClient(rest.ClientConfig{URL: url, Token: token, RetryBudget: -1})
	if err != nil {
		return agl.Statistics{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.Health(ctx); err != nil {
		return agl.Statistics{}, err
	}
	return client.Statistics(ctx)
}

// The addresses that commands of this program use which are told of no others.
const (
	defaultStoreURL = "http://localhost:4747"
	storeAddress    = "127.0.0.1:4747"
	proxyAddress    = "127.0.0.1:4748"
)

// defaultStore looks at the store and the ports of programs without settings.
func (d *doctor) defaultStore(ctx context.Context) {
	if _, err := d.ask(ctx, defaultStoreURL, d.token); err == nil || errors.Is(err, agl.ErrUnauthorized) {
		d.store(ctx, defaultStoreURL, d.token)
	} else {
		d.addf("store", warns, "agl store starts one; agl train needs none, it brings its own", "there is none at %s", defaultStoreURL)
		d.port(ctx, "port of agl store", storeAddress, warns)
	}
	d.port(ctx, "port of agl proxy", proxyAddress, warns)
}

// port tries to listen; state is what an address is that is not to be had.
func (d *doctor) port(ctx context.Context, check, address string, state verdict) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		err = listener.Close()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		d.addf(check, state, "end the program that has it, or choose another", "%s is in use", address)
	case err != nil:
		d.addf(check, state, "choose an address of this machine", "%v", err)
	default:
		d.addf(check, fine, "", "%s is free", address)
	}
}

// database looks at a database without making or changing anything.
func (d *doctor) database(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	dsn, err := backend.Parse(name)
	if err != nil {
		d.addf("database", fails, "change store.db", "%v", err)
		return
	}
	switch dsn.Kind {
	case backend.Memory:
		d.addf("database", warns, "name a file in store.db to keep the run", "in memory: everything is lost when the run ends")
		return
	case backend.SQLite:
		if _, err := os.Stat(dsn.Path); errors.Is(err, fs.ErrNotExist) {
			d.writable("database", dsn.Path, dsn.String())
			return
		}
	case backend.Postgres:
	}
	status, err := readStatus(ctx, dsn)
	switch {
	case err != nil:
		d.addf("database", fails, "look at what it says, and at store.db", "%s: %v", dsn, err)
	case status.SchemaVersion > status.KnownVersion:
		d.addf("database", fails, "take a newer agl", "%s: its schema is %d, this program knows up to %d", dsn, status.SchemaVersion, status.KnownVersion)
	case status.InUse && dsn.Kind == backend.SQLite:
		d.addf("database", fails, "end the program that has it, or give the URL of its store in store.url", "%s is in use", dsn)
	default:
		d.addf("database", fine, "", "%s opens; it holds %s", dsn, count(status.Contents.TotalRollouts, "rollout"))
	}
}

func readStatus(ctx context.Context, dsn backend.DSN) (status store.DatabaseStatus, err error) {
	db, err := backend.OpenDatabase(ctx, dsn)
	if err != nil {
		return store.DatabaseStatus{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Status(ctx)
}

// writable sees whether something can be made at a path, or in the folder there.
func (d *doctor) writable(check, path, shown string) {
	const remedy = "choose another folder, or make it writable"
	folder := path
	info, err := os.Stat(folder)
	for errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
		info, err = os.Stat(folder)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", folder)
	}
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(folder, ".agl-doctor-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	switch {
	case err != nil:
		d.addf(check, fails, remedy, "%v", err)
	case folder == path:
		d.addf(check, fine, "", "%s is there", shown)
	default:
		d.addf(check, fine, "", "%s can be made", shown)
	}
}
