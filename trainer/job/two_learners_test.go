package job

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// TestTwoLearners: while a live run is at work, a second one in its folder is refused, and so is one in a folder of its own on the same database. The
// first learns on.
func TestTwoLearners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `
engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "127.0.0.1:0", sessions: {idle_timeout: 1m}}
store: {listen: "127.0.0.1:0", db: "sqlite:` + filepath.Join(dir, "agl.db") + `"}
output: ` + filepath.Join(dir, "run") + `
algorithm: {online: {steps: 12, rollouts: 16, least: 8, max_wait: 1s, warm: 4}}
`
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	connections := &http.Transport{MaxIdleConnsPerHost: 4}
	defer connections.CloseIdleConnections()
	defer users.Wait()
	defer stop()
	second := make(chan error, 2)
	result, err := Run(t.Context(), Config{
		File: file, Source: output.Source{Path: path, Text: []byte(text)},
		Listening: func(url string) {
			users.Go(func() {
				for i := 0; ctx.Err() == nil && session(ctx, &http.Client{Transport: connections}, url, "first-"+strconv.Itoa(i)) != nil; i++ {
				} // until the first has its store
				limited, cancel := context.WithTimeout(ctx, time.Minute) // of one that is not refused
				defer cancel()
				_, err := Run(limited, Config{File: file, Resume: true})
				second <- err
				elsewhere := *file
				elsewhere.Output = filepath.Join(dir, "other")
				_, err = Run(limited, Config{File: &elsewhere, Source: output.Source{Path: path, Text: []byte(text)}})
				second <- err
				for i := 0; ctx.Err() == nil; i++ {
					_ = session(ctx, &http.Client{Transport: connections}, url, "chat-"+strings.Repeat("i", i%200)+time.Now().String())
				}
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	users.Wait()
	for _, where := range []string{"the same folder", "another folder"} {
		if err := <-second; err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second learner in %s: got %v, want that it is refused", where, err)
		} else {
			t.Logf("a second learner in %s: %v (%v)", where, err, agl.ErrorCode(err))
		}
	}
	if metrics := read(t, filepath.Join(result.Output, "metrics.jsonl")); strings.Count(metrics, `"learned":["ro-`) != 12 {
		t.Errorf("metrics:\n%s", metrics)
	}
}
