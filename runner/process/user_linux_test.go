package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner/process"
)

// An agent that runs as another user has its own files, and nothing of the runner's.
func TestAgentUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may change users")
	}
	w := newWorld(t)
	cfg := shell(`
		cat "$AGL_TASK_FILE" "$AGL_RESOURCES_FILE" >own || exit 3
		cat /proc/$PPID/environ >/dev/null 2>&1 && exit 4
		id -u; id -g; id -G
		echo '{"reward": 1}' >"$AGL_RESULT_FILE"`)
	cfg.User = &process.User{UID: 65534, GID: 65533}
	cfg.Environ = append(cfg.Environ, "TMPDIR=/tmp")
	a, err := process.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	got := w.step(a, agl.EnqueueRollout{Input: jsontext.Value(`{"question":"who?"}`)})
	if out := strings.Fields(got.messages["stdout"]); got.kind != agl.OutcomeOK || strings.Join(out, " ") != "65534 65533 65533" {
		t.Errorf("got %+v", got)
	}
}

// TestAgentUserLinks: an agent of another user cannot have the runner read what only the runner may.
func TestAgentUserLinks(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may change users")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		script string
		want   agl.OutcomeKind
	}{
		"out of the folder":    {`ln -s "$SECRET" "$AGL_RESULT_FILE"`, agl.OutcomeAgentError},
		"folder is replaced":   {`d=$(dirname "$AGL_RESULT_FILE"); rm -r "$d" && mkdir "$d" && ln -s "$SECRET" "$d/result.json"`, agl.OutcomeAgentError},
		"within the folder":    {`echo 1 >r && ln -s work/r "$AGL_RESULT_FILE"`, agl.OutcomeOK},
		"no result, no folder": {`rm -r "$(dirname "$AGL_RESULT_FILE")"`, agl.OutcomeOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := shell(x.script)
			cfg.User = &process.User{UID: 65534, GID: 65533}
			cfg.Environ = append(cfg.Environ, "TMPDIR=/tmp", "SECRET="+secret)
			a, err := process.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			got := w.step(a, agl.EnqueueRollout{})
			if text := fmt.Sprintf("%+v", got); got.kind != x.want || strings.Contains(text, "s3cret") {
				t.Errorf("got %s", text)
			}
		})
	}
}
