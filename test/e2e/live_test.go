//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/process"
)

// liveTraffic starts, rewards and ends rollouts until the store is gone.
func liveTraffic(ctx context.Context, c *client.Client, round, writer int) {
	for n := 0; ctx.Err() == nil; n++ {
		r, err := c.StartRollout(ctx, agl.StartRolloutParams{})
		if err != nil {
			return
		}
		status := agl.AttemptSucceeded
		if _, err := c.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}); err != nil {
			return
		}
		key := strconv.Itoa(round) + "-" + strconv.Itoa(writer) + "-" + strconv.Itoa(n)
		if _, err := c.AddReward(ctx, agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 1}}, IdempotencyKey: key}); err != nil {
			return
		}
	}
}

// consumer learns from a store. It saves what it has learned together with its cursor.
type consumer struct {
	cursor  string
	learned map[string]int
	rewards map[string]int // by rollout
}

// learn processes one batch. A consumer that is killed saves nothing of it.
func (k *consumer) learn(ctx context.Context, c *client.Client, wait time.Duration, killed bool) (many int, err error) {
	got, err := c.Collect(ctx, agl.CollectParams{Since: k.cursor, Min: 10, Max: 25, MaxWait: wait})
	if err != nil || killed {
		return len(got.Rollouts) + len(got.Corrections), err
	}
	for _, r := range got.Rollouts {
		k.learned[r.Rollout.RolloutID]++
		k.rewards[r.Rollout.RolloutID] += r.Rewards
	}
	for _, r := range got.Corrections {
		k.rewards[r.Rollout.RolloutID] += r.Rewards
	}
	k.cursor = got.Next
	return len(got.Rollouts) + len(got.Corrections), nil
}

// Every rollout and every reward must be learned from once, although store and consumer are
// killed again and again in the middle of the traffic.
func TestCollectOverKills(t *testing.T) {
	t.Parallel()
	const kills = liveKills
	database := "sqlite:" + filepath.Join(process.Dir(t), "agl.db")
	k := consumer{learned: map[string]int{}, rewards: map[string]int{}}
	for round := range kills {
		server, url := startStoreOn(t, database, "--max-events", "200")
		c := impatient(t, url)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for writer := range 4 {
			group.Go(func() { liveTraffic(ctx, c, round, writer) })
		}
		for batch := range 3 {
			if _, err := k.learn(ctx, c, longest, batch%2 == round%2); err != nil {
				t.Fatal(err)
			}
		}
		lost := make(chan error, 1)
		go func() { // a call that the kill may cut off
			_, err := c.Collect(ctx, agl.CollectParams{Since: k.cursor})
			lost <- err
		}()
		server.signalGroup(syscall.SIGKILL)
		<-lost
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
	status := agl.AttemptSucceeded
	for _, r := range page.Items {
		if !r.Status.Finished() {
			if _, err := c.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for many := 1; many > 0; {
		if many, err = k.learn(t.Context(), c, 0, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range page.Items {
		spans, err := c.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		if k.learned[r.RolloutID] != 1 || k.rewards[r.RolloutID] != spans.Total {
			t.Errorf("rollout %s was learned from %d times, with %d of its %d rewards", r.RolloutID, k.learned[r.RolloutID], k.rewards[r.RolloutID], spans.Total)
		}
	}
	if len(k.learned) != len(page.Items) || len(page.Items) < kills*10 {
		t.Errorf("learned from %d rollouts of %d", len(k.learned), len(page.Items))
	}
	t.Logf("%d rollouts over %d kills of the store", len(page.Items), kills)
}

// A session continues in the same rollout after the proxy was killed, by its name and by its key, and ends when it is idle.
// Meanwhile other programs have sessions and rate them; every acknowledged reward must be there once.
func TestSessionOverKills(t *testing.T) {
	t.Parallel()
	model := proxytest.NewServer(proxytest.VLLM(func(string, int) string { return "hi" }))
	t.Cleanup(model.Close)
	_, storeURL := startStoreOn(t, "sqlite:"+filepath.Join(process.Dir(t), "agl.db"))
	c := connect(t, storeURL)
	do := func(url, body string, want int, header ...string) (answer map[string]any, rollout string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header[0], header[1])
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.UnmarshalRead(res.Body, &answer); err != nil || res.StatusCode != want {
			t.Fatalf("%s: %d %v, %v, want %d", url, res.StatusCode, answer, err, want)
		}
		return answer, res.Header.Get("Agl-Rollout")
	}
	const call = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	var byName, byKey, key string
	const kills = liveKills
	rated := map[string]bool{}
	var mu sync.Mutex
	for round := range kills {
		gateway, url := startProxy(t, storeURL, model.BaseURL(), "--session-idle", "1h")
		if round == 0 {
			started, _ := do(url+"/v1/agl/sessions", ``, 201, "X-None", "")
			key = fmt.Sprint(started["key"])
		}
		ctx, stop := context.WithCancel(t.Context())
		var users sync.WaitGroup
		for user := range 3 {
			users.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if id, err := ratedSession(ctx, url, "m", fmt.Sprintf("chat-%d-%d-%d", round, user, n)); err == nil {
						mu.Lock()
						rated[id] = true
						mu.Unlock()
					}
				}
			})
		}
		_, named := do(url+"/v1/chat/completions", call, 200, "X-Agl-Session", "chat-81")
		_, keyed := do(url+"/v1/chat/completions", call, 200, "Authorization", "Bearer "+key)
		if round == 0 {
			byName, byKey = named, keyed
		}
		if named != byName || keyed != byKey || named == "" || keyed == "" {
			t.Fatalf("round %d: the calls are in the rollouts %q and %q, want %q and %q", round, named, keyed, byName, byKey)
		}
		do(url+"/v1/agl/sessions/"+byKey+"/reward", fmt.Sprintf(`{"value":%d}`, round), 200, "Authorization", "Bearer "+key) // flushes
		eventually(t, "rated sessions", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(rated) > 3*round
		})
		gateway.signalGroup(syscall.SIGKILL)
		gateway.end()
		stop()
		users.Wait()
	}
	_, url := startProxy(t, storeURL, model.BaseURL(), "--session-idle", "200ms", "--reward-window", "1h")
	eventually(t, "the end of every session", func() bool {
		page, err := c.QueryRollouts(t.Context(), agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}})
		if err != nil {
			t.Fatal(err)
		}
		return page.Total == 0
	})
	ready := collectAll(t, c)
	for id := range rated {
		if r := ready[id]; len(r) != 1 || r[0].Rewards != 1 || !r[0].Reward.Valid {
			t.Errorf("rated session %s was handed out as %+v", id, r)
		}
	}
	if len(rated) < kills {
		t.Errorf("%d sessions were rated in %d rounds", len(rated), kills)
	}
	t.Logf("%d rated sessions over %d kills of the proxy", len(rated), kills)
	if len(ready[byName]) != 1 || len(ready[byKey]) != 1 {
		t.Fatalf("got %+v and %+v, want both sessions", ready[byName], ready[byKey])
	}
	for _, r := range []agl.CollectedRollout{ready[byName][0], ready[byKey][0]} {
		why, _ := agl.Attributes(r.Rollout.Attempt.Metadata).GetString("agl.session_end")
		if r.Rollout.Status != agl.RolloutSucceeded || why != "idle" {
			t.Errorf("got %+v, ended by %q", r, why)
		}
		if r.Rollout.RolloutID == byKey && (r.Reward != agl.Some(float64(kills-1)) || r.Rewards != kills) {
			t.Errorf("the reward is %v of %d, want %d of %d", r.Reward, r.Rewards, kills-1, kills)
		}
	}
	do(url+"/v1/chat/completions", call, 410, "Authorization", "Bearer "+key)
}

// collectAll returns what a store hands out, by rollout.
func collectAll(t *testing.T, c *client.Client) map[string][]agl.CollectedRollout {
	t.Helper()
	ready := map[string][]agl.CollectedRollout{}
	for since, more := "", true; more; {
		got, err := c.Collect(t.Context(), agl.CollectParams{Since: since})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Rollouts {
			ready[r.Rollout.RolloutID] = append(ready[r.Rollout.RolloutID], r)
		}
		since, more = got.Next, len(got.Rollouts) > 0
	}
	return ready
}
