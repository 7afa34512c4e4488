package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
)

// A configuration file is read again when it has changed and on SIGHUP, and a
// wrong one changes nothing.
func TestConfigWatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "proxy.yaml")
	written := time.Now()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		written = written.Add(time.Second) // whatever the file system's clock can tell apart
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
	}
	const model = "models: [{name: %s, base_url: 'http://127.0.0.1:1/v1'}]\n"
	write(fmt.Sprintf(model, "one"))
	running, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	var reloads []string
	w := &configWatch{path: path, running: running, log: slog.New(slog.NewTextHandler(&lines, nil)), reload: func(models []proxy.Model, _ proxy.Control) error {
		reloads = append(reloads, models[0].Name)
		return nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ticks, hangups := make(chan time.Time), make(chan os.Signal)
	var group sync.WaitGroup
	group.Go(func() { w.run(ctx, ticks, hangups) })
	tick := func() {
		ticks <- time.Time{}
		ticks <- time.Time{} // the first one has been dealt with
	}
	tick()
	write(fmt.Sprintf(model, "two"))
	tick()
	for _, wrong := range []string{"models: [", "models: [{name: x, base_url: ftp://x}]", fmt.Sprintf(model, "x") + "idle_timeout: 1m\n"} {
		write(wrong)
		tick()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	tick()
	write(fmt.Sprintf(model, "three, api_key: env:NO_SUCH_KEY"))
	hangups <- syscall.SIGHUP
	tick()
	stop()
	group.Wait()
	if diff := cmp.Diff([]string{"two", "three"}, reloads); diff != "" {
		t.Errorf("%s\n%s", diff, &lines)
	}
	for _, want := range []string{"not YAML", "base_url: must be", "idle_timeout can only change with a restart", "model=three variable=NO_SUCH_KEY"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("no %q in\n%s", want, &lines)
		}
	}
}

// The error of a spool that cannot be written to has the name of the setting that gave it.
func TestSpoolThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const models = "listen: 127.0.0.1:0\nmodels: [{name: m, base_url: 'http://127.0.0.1:1/v1'}]\n"
	taken := put(t, dir, "file", "") // a file where the directory would be
	inFile, without := put(t, dir, "proxy.yaml", models+"capture: {spool_dir: "+taken+"}\n"), put(t, dir, "plain.yaml", models)
	run := put(t, dir, "agl.yaml", "agent: {command: ['true']}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n"+
		"proxy: {model: m, models: [{name: m, base_url: 'http://127.0.0.1:1/v1'}], capture: {spool_dir: "+taken+"}}\n")
	put(t, dir, "tasks.jsonl", "1\n")
	for _, test := range []struct {
		args []string
		want string // the name of the setting
	}{
		{[]string{"proxy", "--port=0", "--model=m=http://127.0.0.1:1/v1", "--spool-dir=" + taken}, "--spool-dir"},
		{[]string{"proxy", "--config=" + inFile, "--spool-dir=" + dir}, inFile + ": capture.spool_dir"},
		{[]string{"proxy", "--config=" + without, "--spool-dir=" + taken}, "--spool-dir"},
		{[]string{"train", run}, run + ": proxy.capture.spool_dir"},
	} {
		m := &Main{Stdout: io.Discard, Stderr: io.Discard}
		if err := m.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		err := m.Run(t.Context())
		m.Close()
		want := test.want + ": got \"" + taken + "\", must be a directory that this proxy can write to and no other one uses: "
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, want it to begin with %s", test.args, err, want)
		}
	}
}

// The program serves what its configuration file says.
// The store is asked with the token in a file, which is the proxy's own, too.
func TestProxyTokenFile(t *testing.T) {
	t.Parallel()
	store, stop, err := startServer("store", "--port=0", "--db=memory:", "--token=right")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := client.New(client.Config{URL: store, Token: "right"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key, err := c.CreateKey(t.Context(), access.NewKey{Name: "app", Scopes: access.Live})
	if err != nil {
		t.Fatal(err)
	}
	file := put(t, t.TempDir(), "token", "right\n")
	url, stop, err := startServer("proxy", "--store="+store, "--token-file="+file, "--port=0", "--require-keys", "--model=m=http://127.0.0.1:1/v1")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, asked := range []struct {
		path, token string
		status      int
	}{
		{"/v1/models", key.Text, http.StatusOK}, // the proxy has the store's answer about the key
		{"/v1/models", "right", http.StatusOK},
		{"/admin/models", "right", http.StatusOK},
		{"/admin/models", "wrong", http.StatusUnauthorized},
		{"/admin/models", "", http.StatusUnauthorized},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+asked.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if asked.token != "" {
			req.Header.Set("Authorization", "Bearer "+asked.token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != asked.status {
			t.Errorf("%s with the token %q: got %s, want %d", asked.path, asked.token, resp.Status, asked.status)
		}
	}
}

func TestProxyConfig(t *testing.T) {
	t.Parallel()
	backend := proxytest.NewServer(proxytest.VLLM(func(prompt string, _ int) string { return "re: " + prompt }))
	defer backend.Close()
	path := filepath.Join(t.TempDir(), "proxy.yaml")
	file := fmt.Sprintf("listen: 127.0.0.1:0\nmodels: [{name: m, base_url: %q}]\ncapture: {mode: 'off'}\nlog: {calls: false}\n", backend.BaseURL())
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	url, stop, err := startServer("proxy", "--config="+path)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), "re: hi") {
		t.Errorf("%d %s %v", res.StatusCode, body, err)
	}
}
