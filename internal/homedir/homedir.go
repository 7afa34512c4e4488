// Package homedir reads ~ at the beginning of a path as a shell does, where none has read it: in YAML files, in
// --flag=~/path and in the environment.
package homedir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Expand replaces ~ at the beginning of a path by the home directory. The home directories of others, ~name, are an
// error; a folder of that name is ./~name.
func Expand(path string) (string, error) {
	if !strings.HasPrefix(path, "~") {
		return path, nil
	}
	first, rest, _ := strings.Cut(filepath.ToSlash(path), "/")
	if first != "~" {
		return "", fmt.Errorf("got %q, whose %s is not expanded, must be a path such as ~/NAME, /NAME or ./NAME", path, first)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("got %q, but the home directory is unknown: %w", path, err)
	}
	return filepath.Join(home, rest), nil
}
