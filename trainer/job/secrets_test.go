package job

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer/runfile"
)

// Agents do not inherit the variables that hold the secrets of their run: whoever knows the
// key_secret has the key of every attempt, and whoever knows the key of a backend goes around the
// proxy. They are not in what a run leaves behind either.
func TestAgentsGetNoSecrets(t *testing.T) {
	t.Parallel()
	model := proxytest.NewServer(proxytest.VLLM(func(string, int) string { return "hi" }))
	t.Cleanup(model.Close)
	for _, keepalive := range []process.Keepalive{process.KeepaliveNone, process.KeepaliveStdio} {
		t.Run(string(keepalive), func(t *testing.T) {
			t.Parallel()
			script := `env >>"$SEEN"; env >&2; echo '{"reward": 1}'`
			if keepalive == process.KeepaliveStdio {
				script = `env >>"$SEEN"; while read -r task; do echo "$task" >&2; env >&2; echo '{"reward": 1}'; done`
			}
			c := shellJob(t, script)
			seen := filepath.Join(t.TempDir(), "seen")
			secrets := []string{"STORE_TOKEN", "KEY_SECRET", "BACKEND_KEY"}
			environ := append(os.Environ(), "SEEN="+seen)
			for _, name := range secrets {
				environ = append(environ, name+"=canary-of-"+name)
			}
			c.Environ = environ
			c.LookupEnv = func(name string) (string, bool) {
				return "canary-of-" + name, slices.Contains(secrets, name)
			}
			c.File.Agent.Process.Keepalive = keepalive
			c.File.Store.Token = "env:STORE_TOKEN"
			c.File.Proxy = &runfile.Proxy{Config: proxy.Config{
				KeySecret: "env:KEY_SECRET", Models: []proxy.Model{{Name: "m", BaseURL: model.BaseURL(), APIKey: "env:BACKEND_KEY"}},
			}}
			result, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got := baselineOf(t, result); got.Train.RewardMean != 1 {
				t.Errorf("got %+v", got)
			}
			files, err := filepath.Glob(filepath.Join(result.Output, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if said := read(t, seen); !strings.Contains(said, "SEEN=") {
				t.Errorf("agents have said %q", said)
			}
			for _, name := range append(files, seen) {
				if info, err := os.Stat(name); err != nil || info.IsDir() {
					continue
				}
				text := read(t, name)
				if at := strings.Index(text, "canary-of-"); at >= 0 {
					t.Errorf("%s: %.60q", name, text[max(0, at-20):])
				}
			}
		})
	}
}
