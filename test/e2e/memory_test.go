//go:build unix

package e2e

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// limitedGroup makes a control group with a memory limit, as containers have. It returns the file that takes its processes.
func limitedGroup(t *testing.T, limit string) (processes string) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(own)) { // 4:memory:/path, or 0::/path
		_, kind, _ := strings.Cut(strings.TrimSpace(line), ":")
		kind, path, _ := strings.Cut(kind, ":")
		root, file := "/sys/fs/cgroup", "memory.max"
		switch kind {
		case "memory":
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case "":
		default:
			continue
		}
		for _, above := range []string{filepath.Join(root, path), root} { // a container sees its own group as the root
			group, err := os.MkdirTemp(above, "agl")
			if err != nil {
				continue
			}
			t.Cleanup(func() {
				if err := os.Remove(group); err != nil {
					t.Error(err)
				}
			})
			if os.WriteFile(filepath.Join(group, file), []byte(limit), 0) == nil {
				return filepath.Join(group, "cgroup.procs")
			}
		}
	}
	t.Skip("no control group with a memory limit can be made here")
	return ""
}

// TestMemoryLimit: in a container, garbage is collected before the memory that it has is full, unless GOMEMLIMIT says otherwise.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		env        []string
	}{
		{"of the container", "4.8318382e+08", nil}, // 90 %
		{"of the environment", "3.145728e+08", []string{"GOMEMLIMIT=300MiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			processes := limitedGroup(t, "536870912")
			script := []string{"-c", `echo $$ >"$0" && exec "$@"`, processes, aglBinary, "store", "--port", "0", "--db", "memory:"}
			url := startMerged(t, "/bin/sh", script, c.env).awaitStore()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+token)
			reply, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			metrics, err := io.ReadAll(reply.Body)
			if err = errors.Join(err, reply.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(metrics), "\ngo_gc_gomemlimit_bytes "+c.want+"\n") {
				t.Errorf("no memory limit of %s bytes in %s", c.want, metrics)
			}
		})
	}
}
