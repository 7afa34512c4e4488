package job

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// online runs a run file until its steps are done, or stop is called, while users have sessions and rate them.
func online(running context.Context, t *testing.T, cfg Config, calls int, rate func(replies string) map[string]any, watch func(ctx context.Context, url string)) (*Result, error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	connections := &http.Transport{MaxIdleConnsPerHost: 8}
	defer connections.CloseIdleConnections()
	defer users.Wait()
	defer stop()
	cfg.Listening = func(url string) {
		if watch != nil {
			users.Go(func() { watch(ctx, url) })
		}
		for n := range 8 {
			users.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprintf("%s-%d-%d", t.Name(), n, i)
					if err := sessionOf(ctx, &http.Client{Transport: connections}, url, name, calls, rate); err != nil && ctx.Err() == nil {
						continue // the model is not served yet, or the run has ended
					}
				}
			})
		}
	}
	return Run(running, cfg)
}

// good is the number of replies, each a letter, that are in one half of the alphabet.
func good(replies string) (n float64) {
	for _, c := range replies {
		if strings.ContainsRune("aceg", c) {
			n++
		}
	}
	return n
}

// releasesOf returns the releases of a run, the newest first, and the versions that answered each session.
func releasesOf(t *testing.T, dir string) (list []release.Release, versions map[string]map[string]int) {
	t.Helper()
	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "agl.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if list, err = release.New(s).ListReleases(t.Context()); err != nil {
		t.Fatal(err)
	}
	rollouts, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: agl.Paging{Limit: -1}})
	if err != nil {
		t.Fatal(err)
	}
	versions = map[string]map[string]int{}
	for _, r := range rollouts.Items {
		spans, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range spans.Items {
			if version, _ := span.Attributes.GetString(agl.AttrModelVersion); version != "" { // nobody answers while a run stops
				if versions[r.RolloutID] == nil {
					versions[r.RolloutID] = map[string]int{}
				}
				versions[r.RolloutID][version]++
			}
		}
	}
	return list, versions
}

// stepsOf reads the metrics of a run.
func stepsOf(t *testing.T, dir string) (steps []grpo.StepReport) {
	t.Helper()
	for line := range strings.Lines(read(t, filepath.Join(dir, "metrics.jsonl"))) {
		var step grpo.StepReport
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	return steps
}

// TestOnlineReleases: what is learned is tried on a share of the sessions. What is better is promoted; what earns more by doing harm
// is rolled back, and learning goes back. No session sees two versions.
func TestOnlineReleases(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		guards string
		want   release.State
	}{
		"better": {"{}", release.StatePromoted},
		"a hack": {"{harm: 0.05}", release.StateRolledBack},
		"far":    {"{kl: 0.05}", release.StateRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && name != "better" {
				t.Skip("long, and its goroutines are those of another case")
			}
			dir := t.TempDir()
			text := `
engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "127.0.0.1:0", sessions: {idle_timeout: 1m, reward_window: 1m}}
store: {listen: "127.0.0.1:0"}
algorithm:
  online:
    steps: 5
    rollouts: 96
    warm: 4
    max_staleness: 3
    learning_rate: 0.05
    release: {every: 2, share: 0.5, min_sessions: 10, guards: ` + tc.guards + `}
`
			path := filepath.Join(dir, "agl.yaml")
			file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			result, err := online(t.Context(), t, Config{File: file, Source: output.Source{Path: path, Text: []byte(text)}}, 3, func(replies string) map[string]any {
				return map[string]any{"dimensions": map[string]float64{"primary": good(replies), "harm": good(replies)}}
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			metrics := read(t, filepath.Join(result.Output, "metrics.jsonl"))
			if result.State != output.StateFinished {
				t.Errorf("%+v; metrics:\n%s", result.Record, metrics)
			}
			list, versions := releasesOf(t, result.Output)
			if len(list) == 0 {
				t.Fatalf("there were no releases; metrics:\n%s", metrics)
			}
			first := list[len(list)-1]
			last := first.Decisions[len(first.Decisions)-1]
			t.Logf("%d releases; the first: %s by %s, %s", len(list), first.State, last.By, last.Reason)
			if first.State != tc.want || last.By != release.ByGates || first.Model != "policy" {
				t.Errorf("the first release is %s by %s (%s), want %s", first.State, last.By, last.Reason, tc.want)
			}
			if guard, _, _ := strings.Cut(strings.Trim(tc.guards, "{"), ":"); tc.want == release.StateRolledBack && !strings.HasPrefix(last.Reason, guard) {
				t.Errorf("it was rolled back because of %s", last.Reason)
			}
			for _, r := range list[:len(list)-1] {
				want := release.Version{}
				if tc.want == release.StatePromoted {
					want = first.Candidate
				}
				if len(list) == 2 && r.Stable != want {
					t.Errorf("the second release began on %+v, want %+v", r.Stable, want)
				}
			}
			if steps := stepsOf(t, result.Output); tc.want == release.StateRolledBack {
				// The weights after the rollback are those that answered all sessions that are learned from. Which step that is depends on
				// when the gates decide.
				tried := slices.IndexFunc(steps, func(s grpo.StepReport) bool { return s.Candidate != "" })
				if !slices.ContainsFunc(steps[tried+1:], func(after grpo.StepReport) bool {
					return after.Candidate == "" && after.Drift != nil && after.Drift.KL <= 1e-9 && after.Staleness.Max == 0
				}) || tried < 0 {
					t.Errorf("no step of the weights before the candidate comes after it; metrics:\n%s", metrics)
				}
			}
			answered := map[string]bool{}
			for id, seen := range versions {
				for version := range seen {
					answered[version] = true
				}
				if len(seen) != 1 {
					t.Errorf("session %s was answered by %v", id, seen)
				}
			}
			if len(answered) < 2 {
				t.Errorf("only %v answered", answered)
			}
		})
	}
}

// TestOnlineReleaseResumes: a run that is stopped while a candidate is tried serves it again when it is resumed, follows what was decided, and
// learns from no session twice.
func TestOnlineReleaseResumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = `
engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "127.0.0.1:0", sessions: {idle_timeout: 1m, reward_window: 1m}}
store: {listen: "127.0.0.1:0"}
algorithm: {online: {steps: 9, rollouts: 16, max_wait: 1s, warm: 4, max_staleness: 3, release: {every: 2, share: 0.5, min_sessions: 5000}}}
`
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rate := func(replies string) map[string]any { return map[string]any{"value": good(replies)} }
	// await returns the release when it is tried, or was decided, and the run has learned as far ahead as it may.
	await := func(ctx context.Context, url string, do func(s *client.Client, r release.Current)) {
		s, err := client.New(client.Config{URL: url})
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		for ticks := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-ticks.C {
			if current, err := s.CurrentRelease(ctx); err == nil && current.Release != "" {
				do(s, current)
				return
			}
		}
	}
	running, stop := context.WithCancel(t.Context())
	defer stop()
	var shown bytes.Buffer
	result, err := online(running, t, Config{File: file, Source: output.Source{Path: path, Text: []byte(text)}, Out: &shown}, 2, rate, func(ctx context.Context, url string) {
		await(ctx, url, func(*client.Client, release.Current) { stop() })
	})
	if result == nil || result.State != output.StateInterrupted {
		t.Fatalf("%+v, %v", result, err)
	}
	if !strings.Contains(shown.String(), "\nstopping; a second signal stops at once\n") {
		t.Errorf("a run without agents has said, when it was stopped:\n%s", shown.String())
	}
	tried, _ := releasesOf(t, result.Output)
	if len(tried) != 1 || tried[0].State != release.StateCanary {
		t.Fatalf("when it was stopped the releases were %+v", tried)
	}
	file.Output = result.Output
	result, err = online(t.Context(), t, Config{File: file, Resume: true}, 2, rate, func(ctx context.Context, url string) {
		await(ctx, url, func(s *client.Client, r release.Current) {
			if r.Release != tried[0].ID || r.Candidate != tried[0].Candidate {
				t.Errorf("after the restart %+v is tried", r)
			}
			if got, err := s.Collect(ctx, agl.CollectParams{}); err != nil || len(got.Rollouts) == 0 { // as at the server of agl store
				t.Errorf("%d sessions are handed out, %v", len(got.Rollouts), err)
			}
			for ticks := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-ticks.C { // the candidate answers again
				one, err := s.GetRelease(ctx, r.Release)
				if err == nil && one.Evidence.Sessions[release.Candidate] > tried[0].Evidence.Sessions[release.Candidate] {
					break
				}
			}
			if _, err := s.ActOnRelease(ctx, r.Release, release.ActPromote, "it is good enough"); err != nil {
				t.Error(err)
			}
			for ctx.Err() == nil { // the next ones: learning waits for a decision when it is too far ahead
				await(ctx, url, func(s *client.Client, r release.Current) {
					if r.Stable != tried[0].Candidate {
						t.Errorf("the next release began on %+v, want %+v", r.Stable, tried[0].Candidate)
					}
					if _, err := s.ActOnRelease(ctx, r.Release, release.ActRollback, "it is not"); err != nil && ctx.Err() == nil { // the run may end
						t.Error(err)
					}
				})
			}
		})
	})
	if err != nil || result.State != output.StateFinished {
		t.Fatalf("%+v, %v", result, err)
	}
	learned := map[string]int{}
	steps := stepsOf(t, result.Output)
	for _, step := range steps {
		for _, id := range step.Learned {
			learned[id]++
		}
	}
	if len(steps) != 9 {
		t.Errorf("%d steps were done", len(steps))
	}
	for id, n := range learned {
		if n > 1 {
			t.Errorf("session %s was learned from %d times", id, n)
		}
	}
	_, versions := releasesOf(t, result.Output)
	for id, seen := range versions {
		if len(seen) != 1 {
			t.Errorf("session %s was answered by %v", id, seen)
		}
	}
}
