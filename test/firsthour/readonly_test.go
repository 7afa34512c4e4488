//go:build !windows

package firsthour

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadOnlyRun inspects a finished run in a folder that cannot be written.
func TestReadOnlyRun(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "agl-read-only-") // below t.TempDir another user finds nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{
		"agl.yaml":    "agent: {command: [sh, -c, 'echo {\\\"reward\\\": 0.5}']}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n",
		"tasks.jsonl": "{\"n\":1}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	train := exec.CommandContext(t.Context(), binary, "train")
	train.Dir = dir
	if out, err := train.CombinedOutput(); err != nil {
		t.Fatalf("agl train: %v\n%s", err, out)
	}
	var who syscall.SysProcAttr
	if os.Geteuid() == 0 { // root may write everywhere
		const nobody = 65534
		who.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	const unwritable, readable = 0o555, 0o444
	folder := filepath.Join(dir, "runs", "agl")
	mode := func(dirs, files os.FileMode) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir():
				return os.Chmod(path, dirs)
			}
			return os.Chmod(path, files)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mode(unwritable, readable)
	t.Cleanup(func() { mode(0o755, 0o644) })
	copies, err := os.MkdirTemp("", "agl-copies-")
	if err == nil {
		err = os.Chmod(copies, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(copies) })
	for _, look := range []struct {
		args []string
		want string
	}{
		{[]string{"rollouts", folder}, "succeeded"}, {[]string{"trace", "worst", folder}, "\nreward 0.5\n"},
		{[]string{"stats", folder}, "rollouts"}, {[]string{"export", folder, "--what", "triplets", "-"}, "exported 0 triplets of 1 attempts"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, look.args...)
		cmd.SysProcAttr, cmd.Dir = &who, "/"
		cmd.Env = append(os.Environ(), "TMPDIR="+copies)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), look.want) {
			t.Errorf("agl %s: %v, want %q:\n%s", strings.Join(look.args, " "), err, look.want, out)
		}
	}
	if left, err := os.ReadDir(copies); err != nil || len(left) > 0 {
		t.Errorf("copies of the database are left: %v, %v", left, err)
	}
}
