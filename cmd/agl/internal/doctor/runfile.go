package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer/job"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// Run checks what the run of a file needs, including its store if storing is true.
func (d *Doctor) Run(ctx context.Context, f *runfile.File, storing bool) {
	d.agent(ctx, f)
	d.data(f)
	d.engine(ctx, f)
	d.models(ctx, f)
	if storing {
		d.storage(ctx, f)
	}
	if f.Store.Listen != "" {
		d.port(ctx, "store.listen", f.Store.Listen, Fail)
	}
	if f.Proxy != nil && f.Proxy.Listen != "" {
		d.port(ctx, "proxy.listen", f.Proxy.Listen, Fail)
	}
	d.writable("output", f.Output, f.Output)
}

// agent finds the agent's program and the version of an interpreter. That its script
// exists is checked with the run file.
func (d *Doctor) agent(ctx context.Context, f *runfile.File) {
	command := f.Agent.Process.Command
	if len(command) == 0 {
		d.Addf("agent", OK, "", "none in this process: runners elsewhere run the tasks")
		return
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		d.Addf("agent", Fail, "install it, or name another in agent.command", "%v", err)
		return
	}
	found := command[0] + " is " + path
	if version := d.interpreter(ctx, path); version != "" {
		found += ", " + version
	}
	if !runsTypeScript(ctx, path, command[1:]) {
		d.Addf("agent", Fail, "install Node 22.18 or later, or name another program in agent.command", "%s, which does not run TypeScript", found)
		return
	}
	d.Addf("agent", OK, "", "%s", found)
}

// runsTypeScript reports whether Node runs an agent in TypeScript as it is. Flags may teach it that.
func runsTypeScript(ctx context.Context, path string, args []string) bool {
	if filepath.Base(path) != "node" || len(args) == 0 || !slices.Contains([]string{".ts", ".mts", ".cts"}, filepath.Ext(args[0])) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, interpreterTimeout)
	defer cancel()
	err := exec.CommandContext(ctx, path, "--input-type=module-typescript", "--eval", "let one: number = 1").Run()
	return err == nil || ctx.Err() != nil
}

// interpreterTimeout is how long an interpreter may take to say what it is.
const interpreterTimeout = 10 * time.Second

// interpreter asks a known interpreter for its version; empty for other programs, and if it does
// not answer.
func (d *Doctor) interpreter(ctx context.Context, path string) string {
	flag := "--version"
	switch name := strings.TrimRight(filepath.Base(path), "0123456789."); name {
	case "go":
		flag = "version"
	case "python", "pypy", "node", "deno", "bun", "ruby", "perl", "php", "tsx", "bash":
	default:
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, interpreterTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// data reads all the tasks.
func (d *Doctor) data(f *runfile.File) {
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
			d.Addf(part.name, Fail, "fix the file; this is its first mistake", "%v", err)
		case n == 0:
			d.Addf(part.name, Fail, "add a task", "%s is empty", part.tasks.Path)
		case part.name == "data.train" && f.Data.ValShare > 0 && n == 1:
			d.Addf(part.name, Fail, "add tasks, or leave out data.val_share", "%s has 1 task, so none is left for validation", part.tasks.Path)
		case part.tasks.Limit > 0 && part.tasks.Limit < n:
			d.Addf(part.name, OK, "", "%s, of which %d are used", console.Count(n, "task"), part.tasks.Limit)
		default:
			d.Addf(part.name, OK, "", "%s", console.Count(n, "task"))
		}
	}
	doubts, err := job.Doubts(f)
	if err != nil {
		return // it is found above
	}
	for _, doubt := range doubts {
		d.Addf("data", Warn, "check that this is intended", "%s", doubt)
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

// models calls every backend of the run.
func (d *Doctor) models(ctx context.Context, f *runfile.File) {
	if f.Proxy != nil {
		d.secret("proxy.key_secret", f.Proxy.Config.KeySecret)
		for i, model := range f.Proxy.Config.Models {
			if d.secret(fmt.Sprintf("proxy.models[%d].api_key", i), model.APIKey) {
				d.Model(ctx, "model "+model.Name, model)
			}
		}
	}
	for _, m := range f.Algorithm.Needs().Models {
		if m.BaseURL != "" && d.secret(m.Key+".api_key", m.APIKey) { // others are the proxy's
			d.Model(ctx, m.Key[strings.LastIndexByte(m.Key, '.')+1:], proxy.Model{Name: m.Name, BaseURL: m.BaseURL, APIKey: m.APIKey, TextOnly: true})
		}
	}
}

// storage checks where the run is stored.
func (d *Doctor) storage(ctx context.Context, f *runfile.File) {
	if !d.secret("store.token", f.Store.Token) {
		return
	}
	token := d.cfg.Token
	if name, ok := strings.CutPrefix(f.Store.Token, "env:"); ok {
		token = d.getenv(name)
	}
	switch {
	case f.Store.URL != "":
		d.Store(ctx, client.Config{URL: f.Store.URL, Token: token})
	case f.Store.Database != "":
		d.database(ctx, f.Store.Database)
	default:
		d.database(ctx, string(store.SQLite)+":"+filepath.Join(f.Output, "agl.db"))
	}
}

// writable tries to create a file in the folder at a path, or in the nearest folder above it that exists.
func (d *Doctor) writable(check, path, shown string) {
	const remedy = "choose another folder, or make it writable"
	folder := path
	info, err := os.Stat(folder)
	for errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
		info, err = os.Stat(folder)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", folder)
	}
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(folder, ".agl-doctor-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	switch {
	case err != nil:
		d.Addf(check, Fail, remedy, "%v", err)
	case folder == path && hasRun(path):
		d.Addf(check, OK, "", "%s has a run; the next gets a folder with a number beside it, unless --overwrite or --resume is given", shown)
	case folder == path:
		d.Addf(check, OK, "", "%s exists", shown)
	default:
		d.Addf(check, OK, "", "%s can be created", shown)
	}
}

func hasRun(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, output.RecordFile))
	return err == nil
}
