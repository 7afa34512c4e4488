//go:build !linux

package sqlite

// isMounted returns false: only Linux mounts files.
func isMounted(string) bool { return false }
