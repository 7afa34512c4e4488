package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agl-go/agl"
)

// A file that is mounted alone, as by docker run -v FILE:FILE, would have its lock and its log in the container.
func TestMountedAlone(t *testing.T) {
	t.Parallel()
	path, mounted := filepath.Join(t.TempDir(), "agl.db"), filepath.Join(t.TempDir(), "agl.db")
	for _, name := range []string{path, mounted} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(path, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("files cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	_, err := Open(t.Context(), Config{Path: mounted})
	if agl.ErrorCode(err) != agl.CodeIllegalState || !strings.Contains(err.Error(), mounted+" is mounted by itself") {
		t.Errorf("error %v, want that the file is mounted by itself", err)
	}
	openTest(t, Config{Path: path})
}
