package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// spent is what something took.
type spent struct {
	wall time.Duration
	cpu  time.Duration // of this process and of its children
}

// stopwatch measures what is spent until it is stopped.
type stopwatch struct {
	began time.Time
	cpu   time.Duration
}

func startWatch() (stopwatch, error) {
	cpu, err := cpuTime()
	return stopwatch{time.Now(), cpu}, err
}

func (w stopwatch) stop() (spent, error) {
	cpu, err := cpuTime()
	return spent{time.Since(w.began), cpu - w.cpu}, err
}

// cpuTime is that of this process and of the children that it has waited for.
func cpuTime() (total time.Duration, err error) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0, err
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total, nil
}

// usage is what this process holds.
type usage struct{ goroutines, files int }

func usageNow() (usage, error) {
	files, err := os.ReadDir("/proc/self/fd")
	// One of them is the folder itself.
	return usage{goroutines: runtime.NumGoroutine(), files: len(files) - 1}, err
}

// watchEvery is often enough to see the peaks of a run of many seconds, and costs
// little.
const watchEvery = 100 * time.Millisecond

// watchPeaks keeps the highest usage until it is stopped.
func watchPeaks(peak *usage) (stop func() error) {
	done, failed := make(chan struct{}), make(chan error)
	go func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		var err error
		for {
			select {
			case <-done:
				failed <- err
				return
			case <-ticker.C:
			}
			now, errNow := usageNow()
			err = errors.Join(err, errNow)
			peak.goroutines = max(peak.goroutines, now.goroutines)
			peak.files = max(peak.files, now.files)
		}
	}()
	return func() error {
		close(done)
		return <-failed
	}
}

// childProcesses counts the processes whose parent is this one.
func childProcesses() (int, error) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	n := 0
	for _, list := range lists {
		data, errRead := os.ReadFile(list)
		if errRead != nil && !errors.Is(errRead, fs.ErrNotExist) { // the thread may have ended
			err = errors.Join(err, errRead)
		}
		n += len(bytes.Fields(data))
	}
	return n, err
}
