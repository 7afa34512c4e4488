package main

import "runtime"

// init keeps the first thread for the main goroutine, as process.NewReaper demands. Only an init function runs there for certain.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // see above
