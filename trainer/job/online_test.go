package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// TestOnline: users of a service have sessions at the proxy of a run, and rate them; the run
// learns from them, with neither tasks nor an agent.
func TestOnline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = `
engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "127.0.0.1:0", sessions: {idle_timeout: 1m, reward_window: 1m}}
store: {listen: "127.0.0.1:0"}
algorithm: {online: {steps: 5, rollouts: 16, least: 8, max_wait: 1s, warm: 4}}
`
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	var served atomic.Bool
	connections := &http.Transport{MaxIdleConnsPerHost: 4}
	defer connections.CloseIdleConnections()
	defer users.Wait()
	defer stop()
	result, err := Run(t.Context(), Config{
		File: file, Source: output.Source{Path: path, Text: []byte(text)},
		Listening: func(url string) {
			for n := range 4 {
				users.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						err := session(ctx, &http.Client{Transport: connections}, url, fmt.Sprintf("%d-%d", n, i))
						if err == nil {
							served.Store(true)
						} else if !served.Load() && strings.Contains(err.Error(), "404") { // a call waits for the model, or is told to come again
							t.Errorf("before the model was served a session got: %v", err)
						}
					}
				})
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	metrics := read(t, filepath.Join(result.Output, "metrics.jsonl"))
	if result.State != output.StateFinished || strings.Count(metrics, `"learned":["ro-`) != 5 {
		t.Errorf("%+v; metrics:\n%s", result.Record, metrics)
	}
	if report := read(t, result.Report); !strings.Contains(report, "| algorithm | online |") {
		t.Errorf("report:\n%s", report)
	}
}

// session has a session of one call, and rates it.
func session(ctx context.Context, c *http.Client, storeURL, name string) error {
	return sessionOf(ctx, c, storeURL, name, 1, func(replies string) map[string]any {
		reward := 0.0
		if strings.ContainsAny(replies, "aceg") {
			reward = 1
		}
		return map[string]any{"value": reward}
	})
}

// sessionOf has a session of some calls, and rates its replies.
func sessionOf(ctx context.Context, c *http.Client, storeURL, name string, calls int, rate func(replies string) map[string]any) error {
	store, err := client.New(client.Config{URL: storeURL})
	if err != nil {
		return err
	}
	defer store.Close()
	bundle, err := store.GetLatestResources(ctx)
	if err != nil {
		return err
	}
	model, ok := bundle.Resources[0].Resource.(agl.ProxyLLM)
	if !ok {
		return fmt.Errorf("the first resource is a %T", bundle.Resources[0].Resource)
	}
	post := func(url string, done bool, body any) ([]byte, http.Header, error) {
		doc, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(doc))
		if err != nil {
			return nil, nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Agl-Session", name)
		req.Header.Set("X-Agl-Session-Done", strconv.FormatBool(done))
		res, err := c.Do(req)
		if err != nil {
			return nil, nil, err
		}
		defer res.Body.Close()
		reply, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode >= 300 {
			err = fmt.Errorf("%s: %s", res.Status, reply)
		}
		return reply, res.Header, err
	}
	replies, rollout := "", ""
	for n := range calls {
		reply, header, err := post(strings.TrimSuffix(model.Endpoint, "/v1")+"/v1/chat/completions", n == calls-1, map[string]any{"model": model.Model, "max_tokens": 1, "messages": []any{map[string]any{"role": "user", "content": "say"}}})
		if err != nil {
			return err
		}
		var completion struct {
			Choices []struct {
				Message struct {
					Content string `json:"content"`
				} `json:"message"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(reply, &completion); err != nil {
			return err
		}
		replies += completion.Choices[0].Message.Content
		rollout = header.Get("Agl-Rollout")
	}
	_, _, err = post(storeURL+"/v1/agl/rollouts/"+rollout+"/rewards", false, rate(replies))
	return err
}

// TestOnlineRewards: sessions are rewarded by the run's own model, which was taught to judge, and by a program, as the run
// file says; the run learns from both.
func TestOnlineRewards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"demos.jsonl": `{"messages":[{"role":"user","content":"user: ok"},{"role":"assistant","content":"1"}]}
{"messages":[{"role":"user","content":"user: no"},{"role":"assistant","content":"-1"}]}
`,
		"check.sh": "grep -c '\"content\":\"no\"' || true\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const text = `
engine: {policy: {context: 32, dim: 16, heads: 1, layers: 1, ff: 16, characters: "ernousk10: -", warm_start: {file: demos.jsonl, steps: 150, batch: 4, learning_rate: 0.02}}}
proxy:
  listen: "127.0.0.1:0"
  sampling: {max_tokens: 2}
  sessions:
    idle_timeout: 1m
    reward_window: 1m
    rewards:
      program: {command: [sh, check.sh]}
      judge: {model: policy, prompt: "{next}", max_tokens: 4}
store: {listen: "127.0.0.1:0"}
algorithm: {online: {steps: 4, rollouts: 8, least: 4, max_wait: 1s, warm: 2, learning_rate: 1e-7}}
`
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stop()
	var mu sync.Mutex
	got := map[string]int{}
	result, err := Run(t.Context(), Config{
		File: file, Source: output.Source{Path: path, Text: []byte(text)},
		Listening: func(url string) {
			users.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					next := []string{"ok", "no"}[i%2]
					rewards, err := conversation(ctx, url, fmt.Sprint("chat-", i), next)
					if err != nil {
						continue // the model is not served yet, or the run has ended
					}
					mu.Lock()
					got[next+": "+rewards]++
					mu.Unlock()
				}
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	users.Wait()
	if metrics := read(t, filepath.Join(result.Output, "metrics.jsonl")); strings.Count(metrics, `"learned":["ro-`) != 4 {
		t.Errorf("metrics:\n%s", metrics)
	}
	if got["ok: program 0, judge 1"] == 0 || got["no: program 1, judge -1"] == 0 {
		t.Errorf("the rewards are %v", got)
	}
}

// conversation has a session whose user says next to the first reply, and returns its rewards when it has ended.
func conversation(ctx context.Context, storeURL, name, next string) (string, error) {
	store, err := client.New(client.Config{URL: storeURL})
	if err != nil {
		return "", err
	}
	defer store.Close()
	bundle, err := store.GetLatestResources(ctx)
	if err != nil {
		return "", err
	}
	model, ok := bundle.Resources[0].Resource.(agl.ProxyLLM)
	if !ok {
		return "", fmt.Errorf("the first resource is a %T", bundle.Resources[0].Resource)
	}
	messages := []map[string]string{{"role": "user", "content": "ok"}}
	id := ""
	for _, last := range []string{"false", "true"} {
		doc, err := json.Marshal(map[string]any{"model": model.Model, "max_tokens": 2, "messages": messages})
		if err != nil {
			return "", err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(model.Endpoint, "/v1")+"/v1/chat/completions", bytes.NewReader(doc))
		if err != nil {
			return "", err
		}
		req.Header.Set("X-Agl-Session", name)
		req.Header.Set("X-Agl-Done", last)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		var reply struct {
			Choices []struct {
				Message map[string]string `json:"message"`
			} `json:"choices"`
		}
		err = json.UnmarshalRead(res.Body, &reply)
		_ = res.Body.Close()
		if err != nil || len(reply.Choices) == 0 {
			return "", fmt.Errorf("%s: %w", res.Status, err)
		}
		id = res.Header.Get("Agl-Rollout")
		messages = append(messages, map[string]string{"role": "assistant", "content": reply.Choices[0].Message["content"]}, map[string]string{"role": "user", "content": next})
	}
	if _, err := store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}}); err != nil {
		return "", err
	}
	page, err := store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: id, Name: agl.SpanAnnotation})
	var list []string
	for i := range page.Items {
		value, _ := page.Items[i].Attributes.GetFloat(agl.AttrReward + ".0.value")
		source, _ := page.Items[i].Attributes.GetString(agl.AttrRewardSource)
		list = append(list, fmt.Sprint(source, " ", value))
	}
	return strings.Join(list, ", "), err
}

// TestOnlineFilters: a run learns from sessions of users who have agreed, from few of one user, and from none that its program
// does not let pass or fails for.
func TestOnlineFilters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// b's text may not be learned from, the program fails for c's, and hangs for d's.
	const look = `input=$(cat)
case $input in
*'"content":"b"'*) echo false;;
*'"content":"c"'*) exit 1;;
*'"content":"d"'*) sleep 3600;;
*) echo true;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "look.sh"), []byte(look), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = `
engine: {policy: {context: 16, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy "}}
proxy: {listen: "127.0.0.1:0", sessions: {idle_timeout: 1m, reward_window: 1m}}
store: {listen: "127.0.0.1:0"}
algorithm: {online: {steps: 3, rollouts: 12, least: 4, max_wait: 1s, warm: 2, metadata: {consent: "yes"}, per_user: 2, redaction: {command: [sh, look.sh], timeout: 1s}}}
`
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stop()
	var mu sync.Mutex
	said := map[string]string{} // by rollout: the user, the text, and the consent
	result, err := Run(t.Context(), Config{
		File: file, Source: output.Source{Path: path, Text: []byte(text)},
		Listening: func(url string) {
			users.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					user, word, consent := []string{"ada", "ada", "bob", "eve"}[i%4], string("aaaabcd"[i%7]), []string{"yes", "yes", "yes", "no", ""}[i%5]
					id, err := labelled(ctx, url, fmt.Sprint("chat-", i), user, word, consent)
					if err == nil {
						mu.Lock()
						said[id] = user + " " + word + " " + consent
						mu.Unlock()
					}
				}
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	users.Wait()
	withheld, crowded, learned := 0, 0, 0
	for line := range strings.Lines(read(t, filepath.Join(result.Output, "metrics.jsonl"))) {
		var step struct {
			Learned  []string `json:"learned"`
			Withheld int      `json:"withheld"`
			Crowded  int      `json:"crowded"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		withheld, crowded, learned = withheld+step.Withheld, crowded+step.Crowded, learned+len(step.Learned)
		of := map[string]int{}
		for _, id := range step.Learned {
			user, rest, _ := strings.Cut(said[id], " ")
			if of[user]++; rest != "a yes" || of[user] > 2 {
				t.Errorf("a step learns from %q, the %d. of the user", said[id], of[user])
			}
		}
	}
	if withheld == 0 || crowded == 0 || learned < 3*4 {
		t.Errorf("%d sessions were withheld, %d were too many of one user, %d were learned from; want some of each", withheld, crowded, learned)
	}
}

// labelled has a session of one call, and returns its rollout.
func labelled(ctx context.Context, storeURL, name, user, word, consent string) (rollout string, err error) {
	store, err := client.New(client.Config{URL: storeURL})
	if err != nil {
		return "", err
	}
	defer store.Close()
	bundle, err := store.GetLatestResources(ctx)
	if err != nil {
		return "", err
	}
	model, ok := bundle.Resources[0].Resource.(agl.ProxyLLM)
	if !ok {
		return "", fmt.Errorf("the first resource is a %T", bundle.Resources[0].Resource)
	}
	body := fmt.Sprintf(`{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":%q}]}`, model.Model, word)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(model.Endpoint, "/v1")+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{"X-Agl-Session": name, "X-Agl-User": user, "X-Agl-Consent": consent, "X-Agl-Done": "true"} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %s", res.Status)
	}
	id := res.Header.Get("Agl-Rollout")
	_, err = store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}})
	if err == nil {
		_, err = store.AddReward(ctx, agl.AddRewardParams{RolloutID: id, Rewards: []agl.Reward{{Name: "primary", Value: float64(len(name) % 2)}}})
	}
	return id, err
}
