//go:build examples

package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agl-go/agl/test/process"
)

// TestLiveTemplate checks that the shop's customers are pleased more often after some hundred sessions than at first, that
// every call is answered while the model changes, and that a run can be resumed.
func TestLiveTemplate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(process.Dir(t), "shop")
	if out, err := exec.CommandContext(t.Context(), program, "init", dir, "--template", "live").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "live.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ports [3]string // of the proxy, the store and the shop
	for i := range ports {
		ports[i] = strconv.Itoa(process.FreePort(t))
	}
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(":4748"), []byte(":"+ports[0])), []byte(":4747"), []byte(":"+ports[1]))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "OPENAI_BASE_URL=http://127.0.0.1:"+ports[0]+"/v1", "SHOP_PORT="+ports[2])
	background(t, dir, env, "python3", "shop.py")
	stop := background(t, dir, env, program, "train", "live.yaml")
	first := customers(t, dir, env, 700)
	stop()
	stop = background(t, dir, env, program, "train", "--resume", filepath.Join("runs", "live"))
	second := customers(t, dir, env, 300)
	stop()
	t.Logf("pleased: %v, and after the restart %v", first, second)
	if before, after := first[0], second[len(second)-1]; after < 70 || after <= before {
		t.Errorf("%d of the first hundred customers were pleased, and %d of the last, want at least 70 and more than before", before, after)
	}
}

// customers returns how many of each hundred were pleased.
func customers(t *testing.T, dir string, env []string, sessions int) (pleased []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "customers.py", strconv.Itoa(sessions))
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for said := range strings.Lines(string(out)) {
		if _, rest, ok := strings.Cut(said, "is liked:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatalf("%v in %q", err, said)
			}
			pleased = append(pleased, n)
		}
	}
	if len(pleased) != sessions/100 {
		t.Fatalf("the customers have told %d times:\n%s", len(pleased), out)
	}
	return pleased
}

// background starts a program. stop interrupts it, and so does the end of the test.
func background(t *testing.T, dir string, env []string, name string, args ...string) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Errorf("%s has ended by itself:\n%s", name, log.String())
		}
		_ = cmd.Wait() // it was interrupted
		if t.Failed() {
			t.Logf("%s said:\n%s", name, log.String())
		}
	}
	t.Cleanup(stop)
	return stop
}
