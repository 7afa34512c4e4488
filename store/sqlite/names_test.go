//go:build unix

package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

// A file that is served under one name cannot be opened by another.
func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link, hard := filepath.Join(dir, "agl.db"), filepath.Join(dir, "link.db"), filepath.Join(dir, "hard.db")
	d := open(t, sqlite.Config{Path: path})
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutQueuing)}})
	for name, link := range map[string]func(old, name string) error{link: os.Symlink, hard: os.Link} {
		if err := link(path, name); err != nil {
			t.Fatal(err)
		}
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: link})
	wantError(t, err, agl.ErrIllegalState, path, "in use by another process")
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: hard})
	wantError(t, err, agl.ErrIllegalState, hard, "2 names")
	closeDriver(t, d)
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, agl.ErrIllegalState, path, "2 names")
	if err := os.Remove(hard); err != nil {
		t.Fatal(err)
	}
	d = open(t, sqlite.Config{Path: link})
	if got := load(t, d, driver.LoadParams{Rollouts: []string{"r"}}); len(got.Rollouts) != 1 {
		t.Error("the rollout is not in the file behind the link")
	}
	closeDriver(t, d)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: link})
	wantError(t, err, agl.ErrInvalid, link, "leads to no file")
}

// Databases hold prompts and secrets: nobody else may read them, whatever the umask.
func TestPermissions(t *testing.T) {
	t.Parallel()
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "agl.db")
	d := open(t, sqlite.Config{Path: path})
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutQueuing)}})
	for _, name := range []string{path, path + "-wal", path + "-shm", path + ".lock"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", name, mode)
		}
	}
}

// What cannot be kept is not acknowledged.
func TestRemoved(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, suffix, says string
		replace            bool
	}{
		{"file", "", "removed or replaced", false},
		{"file replaced", "", "removed or replaced", true},
		{"log", "-wal", "write-ahead log", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "agl.db")
			d := open(t, sqlite.Config{Path: path})
			mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutQueuing)}})
			if tc.replace {
				if err := os.Rename(path, path+".away"); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if err := os.Remove(path + tc.suffix); err != nil {
				t.Fatal(err)
			}
			refused := func() {
				t.Helper()
				err := apply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("lost", agl.RolloutQueuing)}})
				wantError(t, err, agl.ErrUnavailable, path, tc.says)
			}
			refused()
			refused()
			if err := d.Ping(t.Context()); err == nil {
				t.Error("the driver says that it is ready")
			}
		})
	}
}

// A backup that is copied over a file that is served takes its place. Nothing is written into it, and its log is left to be moved
// away.
func TestOverwritten(t *testing.T) {
	t.Parallel()
	for name, writesFirst := range map[string]bool{"ready first": false, "write first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testOverwritten(t, writesFirst)
		})
	}
}

func testOverwritten(t *testing.T, writesFirst bool) {
	t.Helper()
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "agl.db"), filepath.Join(dir, "backup.db")
	d := open(t, sqlite.Config{Path: path})
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("before", agl.RolloutQueuing)}})
	if err := errors.Join(d.Ping(t.Context()), openDatabase(t, path).Backup(t.Context(), backup)); err != nil { // Ping opens a reader, too
		t.Fatal(err)
	}
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("after", agl.RolloutQueuing)}})
	data, err := os.ReadFile(backup)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if !writesFirst {
		wantError(t, d.Ping(t.Context()), agl.ErrUnavailable, "overwritten")
	}
	for range 2 {
		err := apply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("lost", agl.RolloutQueuing)}})
		wantError(t, err, agl.ErrUnavailable, path+" was overwritten", "move "+path+"-wal")
		wantError(t, d.Ping(t.Context()), agl.ErrUnavailable, "overwritten")
	}
	wantError(t, d.Close(t.Context()), agl.ErrUnavailable, "overwritten")
	for suffix, want := range map[string][]byte{"": data, "-wal": log} {
		if got, err := os.ReadFile(path + suffix); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has changed, error %v", path+suffix, err)
		}
	}
	// What the next process finds: this one keeps the file open to its end.
	next := filepath.Join(t.TempDir(), "agl.db")
	for _, suffix := range []string{"", "-wal", ".lock"} {
		data, err := os.ReadFile(path + suffix)
		if err := errors.Join(err, os.WriteFile(next+suffix, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: next})
	wantError(t, err, agl.ErrIllegalState, next+" was replaced", "move "+next+"-wal")
	if err := os.Remove(next + "-wal"); err != nil {
		t.Fatal(err)
	}
	d = open(t, sqlite.Config{Path: next})
	if got := load(t, d, driver.LoadParams{Rollouts: []string{"before", "after", "lost"}}); len(got.Rollouts) != 1 {
		t.Errorf("the restored file has %v, want what it had at the backup", got.Rollouts)
	}
	if err := openDatabase(t, next).Check(t.Context(), func(p driver.Problem) { t.Errorf("%s: %s", p.Where, p.What) }); err != nil {
		t.Error(err)
	}
	closeDriver(t, d)
}

// A commit is refused whose log was taken away, and may be in it. Nothing more is written then, also after the log was put back,
// because the driver cannot tell. What was acknowledged is in the file after a restart.
func TestLogTakenAway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ opened, back bool }{
		"and put back":                    {back: true},
		"for good":                        {},
		"and an empty one made":           {opened: true},
		"an empty one made, and put back": {opened: true, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "agl.db")
			d := open(t, sqlite.Config{Path: path})
			if err := d.Ping(t.Context()); err != nil { // opens a reader, too
				t.Fatal(err)
			}
			mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("kept", agl.RolloutQueuing)}})
			if err := os.Rename(path+"-wal", path+".away"); err != nil {
				t.Fatal(err)
			}
			if tc.opened { // whoever opens the database makes a log if there is none
				_, _ = openDatabase(t, path).Status(t.Context())
				if _, err := os.Stat(path + "-wal"); err != nil {
					t.Fatal(err)
				}
			}
			refused := func(id string) {
				t.Helper()
				err := apply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout(id, agl.RolloutQueuing)}})
				wantError(t, err, agl.ErrUnavailable, path, "write-ahead log", "restart the server")
			}
			refused("a")
			if tc.back {
				if err := os.Rename(path+".away", path+"-wal"); err != nil {
					t.Fatal(err)
				}
			}
			refused("b")
			wantError(t, d.Ping(t.Context()), agl.ErrUnavailable, "write-ahead log")
			wantError(t, d.Close(t.Context()), agl.ErrUnavailable, "write-ahead log")

			again := open(t, sqlite.Config{Path: path})
			got := load(t, again, driver.LoadParams{Rollouts: []string{"kept", "b"}})
			if len(got.Rollouts) != 1 || got.Rollouts[0].Rollout.RolloutID != "kept" {
				t.Errorf("after a restart there are %v, want the acknowledged rollout alone", got.Rollouts)
			}
			mustApply(t, again, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("c", agl.RolloutQueuing)}})
			closeDriver(t, again)
		})
	}
}

// A backup that is copied over the file of a server that has crashed is not opened with the log of that file, and nothing of
// either is changed. Without the log it is a database like any other.
func TestRestoredBesideLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "agl.db"), filepath.Join(dir, "backup.db")
	d := open(t, sqlite.Config{Path: path})
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("before", agl.RolloutQueuing)}})
	if err := openDatabase(t, path).Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("after", agl.RolloutQueuing)}})
	contents := map[string][]byte{}
	for suffix, from := range map[string]string{"": backup, "-wal": path + "-wal", ".lock": path + ".lock"} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		contents[suffix] = data
	}
	closeDriver(t, d)
	for suffix, data := range contents {
		if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	db := openDatabase(t, path)
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, agl.ErrIllegalState, path+" was replaced", "stop the server", "move "+path+"-wal", path+".lock if")
	_, err = db.Status(t.Context())
	wantError(t, err, agl.ErrIllegalState, path+" was replaced")
	_, _, err = db.Migrate(t.Context())
	wantError(t, err, agl.ErrIllegalState, path+" was replaced")
	for suffix, want := range contents {
		if got, err := os.ReadFile(path + suffix); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has changed, error %v", path+suffix, err)
		}
	}

	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	d = open(t, sqlite.Config{Path: path})
	if got := load(t, d, driver.LoadParams{Rollouts: []string{"before", "after"}}); len(got.Rollouts) != 1 {
		t.Errorf("the restored file has %v, want what it had at the backup", got.Rollouts)
	}
	status, err := db.Status(t.Context())
	if err != nil || !status.InUse {
		t.Errorf("status %+v, error %v", status, err)
	}
	closeDriver(t, d)
}

// A database that was moved with its log to the name of a removed one is opened, as is one beside a lock file of other content.
func TestMovedWithLog(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{"removed": "", "other content": "0123456789a\x00\n", "short": "0123"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			prod, path := filepath.Join(dir, "prod.db"), filepath.Join(dir, "test.db")
			d := open(t, sqlite.Config{Path: path})
			mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("test", agl.RolloutQueuing)}})
			closeDriver(t, d)
			d = open(t, sqlite.Config{Path: prod})
			mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("prod", agl.RolloutQueuing)}})
			crashed := crash(t, prod)
			closeDriver(t, d)
			for _, suffix := range []string{"", "-wal"} {
				if err := os.Rename(crashed+suffix, path+suffix); err != nil {
					t.Fatal(err)
				}
			}
			if lock != "" {
				if err := os.WriteFile(path+".lock", []byte(lock), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := openDatabase(t, path).Status(t.Context()); err != nil {
				t.Error(err)
			}
			d = open(t, sqlite.Config{Path: path})
			if got := load(t, d, driver.LoadParams{Rollouts: []string{"prod", "test"}}); len(got.Rollouts) != 1 || got.Rollouts[0].Rollout.RolloutID != "prod" {
				t.Errorf("the moved database has %v, want what was acknowledged", got.Rollouts)
			}
			closeDriver(t, d)
		})
	}
}
