package main

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that is started from the first thread is taken for an orphan of an agent, and killed: no goroutine gets there.
func TestFirstThreadIsKept(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var started, ended sync.WaitGroup
	for range 64 {
		started.Add(1)
		ended.Go(func() {
			runtime.LockOSThread() // each goroutine takes another thread
			defer runtime.UnlockOSThread()
			if unix.Gettid() == os.Getpid() {
				t.Error("a goroutine runs on the first thread")
			}
			started.Done()
			<-release
		})
	}
	started.Wait()
	close(release)
	ended.Wait()
}
