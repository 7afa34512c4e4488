//go:build linux

package disk

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/test/process"
)

// place is a place with little space, which can be extended.
type place struct {
	dir   string
	limit func(s *process.Server)
	more  func(s *process.Server)
}

// mount returns the directory of a new file system in memory.
func mount(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("file systems cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// smallDisk is a file system in memory, with a file that can be deleted to make room.
func smallDisk(t *testing.T) place {
	t.Helper()
	dir := mount(t, "12m")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return place{dir: dir, limit: func(*process.Server) {}, more: func(*process.Server) {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}}
}

// smallFiles limits the size of the server's files, like a quota.
func smallFiles(t *testing.T) place {
	t.Helper()
	limit := func(bytes uint64) func(s *process.Server) {
		return func(s *process.Server) {
			if err := unix.Prlimit(s.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return place{dir: process.Dir(t), limit: limit(6 << 20), more: limit(unix.RLIM_INFINITY)}
}

// checkRefusal fails unless an error says that the client may try again later, and why.
func checkRefusal(t *testing.T, err error, path string) {
	t.Helper()
	code := agl.ErrorCode(err)
	if code != agl.CodeExhausted && code != agl.CodeUnavailable || !strings.Contains(err.Error(), path) {
		t.Errorf("a write without room failed with code %q and %q, want exhausted or unavailable and the file %s", code, err, path)
	}
}

// TestNoRoom writes until there is no room. Then writes must be refused, reads must go on, and
// when there is room again, writes must succeed. No acknowledged write may be lost.
func TestNoRoom(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(t *testing.T) place
	}{{"full disk", smallDisk}, {"largest file", smallFiles}} {
		t.Run(test.name, func(t *testing.T) {
			random := seed(t)
			p := test.make(t)
			path := filepath.Join(p.dir, "agl.db")
			server := process.Store(t, aglBinary, "store", process.Dir(t), "--db", "sqlite:"+path)
			p.limit(server)
			c := connect(t, server)
			w := &writer{t: t, store: c, random: random}
			const most = 20_000 // writes; fewer fill the place
			var refused error
			for n := 0; refused == nil && n < most; n++ {
				refused = w.write()
			}
			if refused == nil {
				t.Fatal("the disk does not fill")
			}
			checkRefusal(t, refused, path)
			for range 20 {
				if err := w.write(); err != nil {
					checkRefusal(t, err, path)
				}
			}
			w.checkKept(c)
			p.more(server)
			w.awaitWrite()
			for range 20 {
				if err := w.write(); err != nil {
					t.Fatal(err)
				}
			}
			w.checkKept(c)
			awaitReady(t, server)
			server.Kill()
			server.Start()
			w.checkKept(c)
			t.Logf("%d spans acknowledged", len(w.sent))
		})
	}
}

// TestStopWithoutRoom ends a server on a full disk: that is no failure, because nothing acknowledged is lost.
func TestStopWithoutRoom(t *testing.T) {
	random := seed(t)
	p := smallDisk(t)
	server := process.Store(t, aglBinary, "store", process.Dir(t), "--db", "sqlite:"+filepath.Join(p.dir, "agl.db"))
	w := &writer{t: t, store: connect(t, server), random: random}
	const most = 20_000
	refused := error(nil)
	for n := 0; refused == nil && n < most; n++ {
		refused = w.write()
	}
	if refused == nil {
		t.Fatal("the disk does not fill")
	}
	server.Stop()
	said, err := os.ReadFile(server.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(said), "no space is left to tidy") || strings.Contains(string(said), "\nagl: ") {
		t.Errorf("it ended with an error:\n%s", said)
	}
	p.more(server)
	server.Start()
	w.checkKept(connect(t, server))
	w.awaitWrite()
}

// awaitWrite waits until a write is accepted again.
func (w *writer) awaitWrite() {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(longest)
	for {
		err := w.write()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("writes do not go on: %v", err)
		}
	}
}

// awaitReady waits until the server says that it is ready.
func awaitReady(t *testing.T, s *process.Server) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(longest)
	for {
		answer, err := http.Get(s.URL() + "/v1/agl/ready")
		if err == nil {
			if err := answer.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the server is not ready: %v %v", answer, err)
		}
	}
}

// nobody is a user to whom the permissions of files apply; nil if they apply to the user who
// runs the tests.
func nobody() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	const id = 65534
	return &syscall.Credential{Uid: id, Gid: id}
}

// ownDir makes a directory that belongs to the user who runs the server.
func ownDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writable(t, filepath.Dir(dir), true) // which lets others in
	if who := nobody(); who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { writable(t, dir, true) }) // so that it can be removed
	return dir
}

func writable(t *testing.T, dir string, yes bool) {
	t.Helper()
	mode := os.FileMode(0o555)
	if yes {
		mode = 0o755
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyStart starts a server in a directory that it cannot write.
func TestReadOnlyStart(t *testing.T) {
	dir := ownDir(t)
	writable(t, dir, false)
	cmd := exec.CommandContext(t.Context(), aglBinary, "store", "--port", "0", "--db", "sqlite:"+filepath.Join(dir, "agl.db"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody()}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), dir) || !strings.Contains(string(out), "must be writable") {
		t.Errorf("agl store in a read-only directory: %v\n%s", err, out)
	}
}

// TestReadOnlyMeanwhile makes the directory of a running server read-only, and writable again.
// Open files may still be written.
func TestReadOnlyMeanwhile(t *testing.T) {
	random := seed(t)
	dir := ownDir(t)
	path := filepath.Join(dir, "agl.db")
	server := process.StoreAs(t, nobody(), aglBinary, "store", process.Dir(t), "--db", "sqlite:"+path)
	c := connect(t, server)
	w := &writer{t: t, store: c, random: random}
	for n := range 60 {
		if n == 20 {
			writable(t, dir, false)
		}
		if n == 40 {
			w.checkKept(c)
			writable(t, dir, true)
			w.awaitWrite()
		}
		if err := w.write(); err != nil {
			checkRefusal(t, err, dir)
		}
	}
	w.checkKept(c)
	server.Kill()
	server.Start()
	w.checkKept(c)
}

// TestBackupWithoutRoom makes a backup for which there is no room. Nothing of it is left.
func TestBackupWithoutRoom(t *testing.T) {
	dir := mount(t, "4m")
	db := "sqlite:" + filepath.Join(process.Dir(t), "agl.db")
	server := process.Store(t, aglBinary, "store", process.Dir(t), "--db", db)
	c := connect(t, server)
	random := rand.NewChaCha8([32]byte{})
	for range 8 {
		input := make([]byte, 1<<20)
		if _, err := random.Read(input); err != nil {
			t.Fatal(err)
		}
		task := agl.EnqueueRollout{Input: jsontext.Value(fmt.Sprintf(`"%x"`, input))}
		if _, err := c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{task}}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), aglBinary, "db", "backup", "--db", db, filepath.Join(dir, "copy.db")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no space is left") {
		t.Errorf("error %v, and it says: %s", err, out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, error %v", left, err)
	}
}
