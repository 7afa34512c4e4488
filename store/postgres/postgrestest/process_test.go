package postgrestest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A machine without PostgreSQL says what to do, and of several servers the newest
// is taken.
func TestBinaries(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Chdir(t.TempDir()) // the first number of a path is the version
	places := []string{"*/bin/initdb"}
	if _, err := binaries(places); err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("error %v does not say what to install", err)
	}
	for _, version := range []string{"9", "15", "14"} {
		bin := filepath.Join(version, "bin")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, "initdb"), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if bin, err := binaries(places); err != nil || bin != filepath.Join("15", "bin") {
		t.Errorf("got %s, %v; want the newest", bin, err)
	}
}
