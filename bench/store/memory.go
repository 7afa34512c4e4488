package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// nameMemoryUse is the measurement of a server's memory.
const nameMemoryUse = "memory"

// measureMemory returns the most memory, in bytes, that a server had resident under the load with options.Memory bytes of
// spans in its database; 0 when it was not asked for.
func measureMemory(ctx context.Context, opt options, dir string) (rss int64, err error) {
	if opt.Memory == 0 || !opt.picked(nameMemoryUse) {
		return 0, nil
	}
	text := prose()
	sample := text("ro-000000000000", "at-00000000", 0)
	size := len(sample.AppendJSON(nil))
	path := filepath.Join(dir, "memory.db")
	if _, err := filledDatabase(ctx, opt, path, filling{spans: int(opt.Memory / int64(size)), make: text}); err != nil {
		return 0, err
	}
	srv, err := startAgl(ctx, opt, "--db", "sqlite:"+path, "--sync", "full")
	if err != nil {
		return 0, err
	}
	defer srv.stop()
	res, err := load(ctx, newWireWorker(srv.urls, opt.Runners), opt, opt.wait)
	if err != nil {
		return 0, err
	}
	rss, err = srv.process.Memory("VmHWM")
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(os.Stdout, "\nmemory: %.0f MB resident at most, with %.1f GB of spans in a file of %.1f GB, at %.0f rollouts/s\n",
		float64(rss)/1e6, float64(opt.Memory)/1e9, float64(info.Size())/1e9, res.rolloutsPerSecond())
	return rss, nil
}
