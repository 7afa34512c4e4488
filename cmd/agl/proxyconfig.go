package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/configfile"
)

// configWatch brings a running proxy what changes in its configuration file. A
// file that is wrong in any part changes nothing.
type configWatch struct {
	path    string
	running *configfile.File // what the proxy goes by
	reload  func(models []proxy.Model, control proxy.Control) error
	log     *slog.Logger

	modified time.Time // of the file when it was last looked at
	size     int64
}

// run looks at the file at each tick and reads it at each hangup, until ctx ends.
func (w *configWatch) run(ctx context.Context, ticks <-chan time.Time, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			if !w.look() {
				continue
			}
		case <-hangups:
			w.look()
		}
		if err := w.read(); err != nil {
			w.log.Error("configuration refused, the old one stays", "file", w.path, "error", err)
		}
	}
}

// look reports whether the file has changed since it was last called, and at
// first. One that is not there, as while an editor writes it, has not.
func (w *configWatch) look() bool {
	info, err := os.Stat(w.path)
	if err != nil {
		return false
	}
	changed := !info.ModTime().Equal(w.modified) || info.Size() != w.size
	w.modified, w.size = info.ModTime(), info.Size()
	return changed
}

// read takes what the file says now.
func (w *configWatch) read() error {
	next, err := readConfig(w.path)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(next, w.running) {
		return nil
	}
	if changed := w.running.Frozen(next); len(changed) > 0 {
		return fmt.Errorf("%s: %s can only change with a restart", w.path, strings.Join(changed, ", "))
	}
	if err := w.reload(next.Proxy.Models, next.Proxy.Control); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.running = next
	w.log.Info("configuration read", "file", w.path, "models", len(next.Proxy.Models))
	return nil
}
