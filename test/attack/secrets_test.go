//go:build unix

package attack

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// An agent must not be able to read the environment or the memory of the runner that started it.
func TestAgentFindsNoToken(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows processes as files")
	}
	dir := t.TempDir()
	store := start(t, "store", dir, []string{"store", "--port", "0", "--db", "memory:"}, "AGL_TOKEN="+token)
	if err := store.expect(http.MethodPost, "/v1/agl/resources", `{"p":{"resource_type":"prompt_template","template":"x","engine":"f-string"}}`, http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	if err := store.expect(http.MethodPost, "/v1/agl/queues/rollouts/enqueue", `{"rollouts":[{"input":{}}]}`, http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	const script = `
		cat /proc/$PPID/environ && exit 3
		head -c 1 /proc/$PPID/mem && exit 4
		env | grep -q ` + token + ` && exit 5
		echo '{"reward": 1}'`
	runner := exec.CommandContext(t.Context(), binary, "runner", "--store", "http://"+store.address, "--max-rollouts", "1", "--", "/bin/sh", "-c", script)
	home, err := os.MkdirTemp("/tmp", "agl-attack-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	runner.Dir, runner.Env = home, append(os.Environ(), "AGL_TOKEN="+token, "TMPDIR=/tmp", "HOME="+home)
	if os.Getuid() == 0 { // root may read everything
		const nobody = 65534
		runner.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chown(home, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	said, err := runner.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := store.expect(http.MethodGet, "/v1/agl/rollouts", "", http.StatusOK, `"status":"succeeded"`); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// The environment that the kernel shows must have no secret, not even for root.
func TestEnvironmentIsErased(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("only root on Linux may read the environment of agl")
	}
	store := start(t, "store", t.TempDir(), []string{"store", "--port", "0", "--db", "memory:"}, "AGL_TOKEN="+token, "SOME_API_KEY=canary-1", "PLAIN=seen")
	environ, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(store.process.Pid), "environ"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{token: false, "canary-1": false, "PLAIN=seen": true} {
		if got := bytes.Contains(environ, []byte(text)); got != want {
			t.Errorf("%q in the environment: %t, want %t", text, got, want)
		}
	}
}
