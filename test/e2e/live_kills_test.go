//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/process"
)

// liveKills is how often each part of a live service is killed under load.
const liveKills = 30

// canaryTraffic has sessions of a release until the store is gone.
func canaryTraffic(ctx context.Context, c *client.Client, id string, arm release.Arm) {
	metadata := fmt.Appendf(nil, `{%q:%q,%q:%q,%q:0.5}`, release.MetadataRelease, id, release.MetadataArm, arm.String(), release.MetadataShare)
	for ctx.Err() == nil {
		r, err := c.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: metadata}})
		if err != nil {
			return
		}
		if _, err := c.AddReward(ctx, agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 0.5}}}); err != nil {
			return
		}
		status := agl.AttemptSucceeded
		if _, err := c.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}); err != nil {
			return
		}
	}
}

// A release is what it was after each kill of the store: every decision that was acknowledged is there, in its order, and
// every session is evidence once.
func TestReleaseOverKills(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(process.Dir(t), "agl.db")
	var before release.Release
	for round := range liveKills {
		server, url := startStoreOn(t, database)
		c := impatient(t, url)
		if round == 0 {
			added, err := c.AddResources(t.Context(), agl.AddResourcesParams{Resources: []agl.NamedResource{{Name: "system", Resource: agl.PromptTemplate{Template: "be brief", Engine: agl.PromptFString}}}})
			if err != nil {
				t.Fatal(err)
			}
			before, err = c.ProposeRelease(t.Context(), release.Proposal{
				Candidate: release.Version{ResourcesID: added.ResourcesID}, Share: 0.5, Gates: release.Gates{MinSessions: 1_000_000, MaxSessions: 2_000_000},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		get := func() release.Release {
			t.Helper()
			now, err := c.GetRelease(t.Context(), before.ID)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		now := get()
		sessions := now.Evidence.Sessions
		if now.State != before.State || now.Frozen != before.Frozen || now.Candidate != before.Candidate || now.Share != before.Share ||
			len(now.Decisions) != len(before.Decisions) || sessions[0] < before.Evidence.Sessions[0] || sessions[1] < before.Evidence.Sessions[1] {
			t.Fatalf("kill %d: the release is %+v, it was %+v", round, now, before)
		}
		current, err := c.CurrentRelease(t.Context())
		if err != nil || current.Release != before.ID || current.Candidate != before.Candidate {
			t.Fatalf("kill %d: the current release is %+v, %v", round, current, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for _, arm := range []release.Arm{release.Stable, release.Candidate, release.Candidate} {
			group.Go(func() { canaryTraffic(ctx, c, before.ID, arm) })
		}
		act := release.ActFreeze
		if before.Frozen {
			act = release.ActResume
		}
		if _, err := c.ActOnRelease(t.Context(), before.ID, act, "to see what is kept"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "evidence", func() bool {
			before = get()
			return before.Evidence.Sessions[0]+before.Evidence.Sessions[1] >= sessions[0]+sessions[1]+5
		})
		server.signalGroup(syscall.SIGKILL)
		server.end()
		cancel()
		group.Wait()
	}

	_, url := startStoreOn(t, database)
	c := connect(t, url)
	page, err := c.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	var want [2]int64
	status := agl.AttemptSucceeded
	for _, r := range page.Items {
		if !r.Status.Finished() {
			if _, err := c.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
		if arm, _ := agl.Attributes(r.Metadata).GetString(release.MetadataArm); arm == release.Candidate.String() {
			want[release.Candidate]++
		} else {
			want[release.Stable]++
		}
	}
	var last release.Release
	eventually(t, "all evidence", func() bool {
		if last, err = c.GetRelease(t.Context(), before.ID); err != nil {
			t.Fatal(err)
		}
		return last.Evidence.Sessions[0]+last.Evidence.Sessions[1] >= want[0]+want[1]
	})
	if last.Evidence.Sessions != want {
		t.Errorf("the evidence is of %v sessions, want %v", last.Evidence.Sessions, want)
	}
	for i, d := range last.Decisions[1:] {
		if wanted := []release.Act{release.ActFreeze, release.ActResume}[i%2]; d.Action != string(wanted) {
			t.Errorf("decision %d is %s, want %s", i, d.Action, wanted)
		}
	}
	if len(last.Decisions) != 1+liveKills {
		t.Errorf("%d decisions, want %d", len(last.Decisions), 1+liveKills)
	}
	t.Logf("%d sessions over %d kills of the store", len(page.Items), liveKills)
}

// learnedOf reads which sessions the steps of a run have learned from, and how many they have passed over.
func learnedOf(t *testing.T, metrics string) (times map[string]int, steps, masked int) {
	t.Helper()
	times = map[string]int{}
	for _, line := range readLines(t, metrics) {
		if !strings.HasSuffix(line, "\n") {
			continue // it is being written
		}
		var step struct {
			Learned []string       `json:"learned"`
			Stale   int            `json:"stale"`
			Masked  map[string]int `json:"masked"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		steps++
		masked += step.Stale
		for _, n := range step.Masked {
			masked += n
		}
		for _, id := range step.Learned {
			times[id]++
		}
	}
	return times, steps, masked
}

// A whole live run, learner, store and proxy in one process, is killed again and again while users have sessions and rate them:
// no session is learned from twice, and each that was rated is learned from, also if weights of a killed step have answered it.
func TestLearnerOverKills(t *testing.T) {
	t.Parallel()
	dir := process.Dir(t)
	output, gateway := filepath.Join(dir, "run"), "127.0.0.1:"+strconv.Itoa(process.FreePort(t))
	file := filepath.Join(dir, "live.yaml")
	text := `engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "` + gateway + `", sessions: {idle_timeout: 1m, reward_window: 1h}}
store: {listen: "127.0.0.1:0"}
algorithm: {online: {rollouts: 8, least: 1, max_wait: 100ms, warm: 2, max_staleness: 1000}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stop()
	var mu sync.Mutex
	rated := map[string]bool{}
	for user := range 3 {
		users.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if id, err := ratedSession(ctx, "http://"+gateway, "policy", fmt.Sprintf("chat-%d-%d", user, n)); err == nil {
					mu.Lock()
					rated[id] = true
					mu.Unlock()
				}
			}
		})
	}
	metrics := filepath.Join(output, "metrics.jsonl")
	args, steps := []string{file, "--output", output}, 0
	for range liveKills {
		run := startTrain(t, args...)
		run.killWhen(t, metrics, steps+1)
		_, steps, _ = learnedOf(t, metrics)
		args = []string{"--resume", output}
	}
	run := startTrain(t, args...)
	eventually(t, "another session", func() bool {
		_, now, _ := learnedOf(t, metrics)
		return now > steps+1
	})
	stop()
	users.Wait()
	left := func() (list []string) {
		times, _, _ := learnedOf(t, metrics)
		for id := range rated {
			if times[id] == 0 {
				list = append(list, id)
			}
		}
		return list
	}
	// Those that are left come in the steps to come.
	eventually(t, "every session", func() bool { return len(left()) == 0 })
	if err := run.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	run.end(t, ctrlC)
	times, steps, masked := learnedOf(t, metrics)
	for id, n := range times {
		if n != 1 {
			t.Errorf("session %s was learned from %d times", id, n)
		}
	}
	if len(times) < liveKills {
		t.Errorf("of %d rated sessions %d were learned from in %d steps, %d were masked", len(rated), len(times), steps, masked)
	}
	t.Logf("%d sessions in %d steps over %d kills of learner, store and proxy", len(times), steps, liveKills)
}

// ratedSession has a session of one call and rates it. It returns its rollout if both were acknowledged.
func ratedSession(ctx context.Context, gateway, model, name string) (rollout string, err error) {
	post := func(path, body string) (rollout string, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("X-Agl-Session", name)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		var answer map[string]any
		if err := json.UnmarshalRead(res.Body, &answer); err != nil {
			return "", err
		}
		if res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s: %s %v", path, res.Status, answer)
		}
		return res.Header.Get("Agl-Rollout"), nil
	}
	id, err := post("/v1/chat/completions", `{"model":"`+model+`","max_tokens":2,"messages":[{"role":"user","content":"say"}]}`)
	if err != nil {
		// The service comes back; asking at once would only take its processor.
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return "", err
	}
	if id == "" {
		return "", errors.New("the call was not recorded")
	}
	if _, err := post("/v1/agl/sessions/"+id+"/reward", fmt.Sprintf(`{"value":%d,"idempotency_key":"k"}`, len(name)%2)); err != nil {
		return "", err
	}
	_, err = post("/v1/agl/sessions/"+id+"/end", ``)
	return id, err
}
