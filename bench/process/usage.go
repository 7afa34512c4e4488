package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// usage is the number of goroutines and open files of this process.
type usage struct{ goroutines, files int }

func usageNow() (usage, error) {
	files, err := os.ReadDir("/proc/self/fd")
	// One of them is the folder itself.
	return usage{goroutines: runtime.NumGoroutine(), files: len(files) - 1}, err
}

// watchEvery is the interval of samples: short enough to see the peaks of a long run.
const watchEvery = 100 * time.Millisecond

// watchPeaks keeps the highest usage until it is stopped.
func watchPeaks(peak *usage) (stop func() error) {
	done, failed := make(chan struct{}), make(chan error)
	go func() {
		ticker := time.Tick(watchEvery)
		var err error
		for {
			select {
			case <-done:
				failed <- err
				return
			case <-ticker:
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
