package sqlite

import "golang.org/x/sys/unix"

// isMounted reports whether a file itself, and not a directory above it, is mounted at a path.
func isMounted(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, 0, 0, &st) == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
