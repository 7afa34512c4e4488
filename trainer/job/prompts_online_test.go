package job

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// scripted is the API of a model that answers as its prompt says, and of one that criticises and edits: its first edit is bad, the
// others are good.
func scripted(t *testing.T) *httptest.Server {
	var edits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		asked, reply := string(body), "fine"
		switch {
		case strings.Contains(asked, `"model":"critic"`) && strings.Contains(asked, "critique>"):
			if reply = "Answer {question} KINDLY"; edits.Add(1) == 1 {
				reply = "Answer {question} RUDELY"
			}
		case strings.Contains(asked, `"model":"critic"`):
			reply = "It does not say how."
		case strings.Contains(asked, "KINDLY"):
			reply = "great"
		case strings.Contains(asked, "RUDELY"):
			reply = "bad"
		}
		fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`, reply)
	}))
	t.Cleanup(server.Close)
	return server
}

// prompted has a session of one call with the prompt that its version has, and rates the reply.
func prompted(ctx context.Context, store *client.Client, n int) error {
	bundle, err := store.GetLatestResources(ctx)
	if err != nil {
		return err
	}
	var proxy string
	for _, r := range bundle.Resources {
		if llm, ok := r.Resource.(agl.ProxyLLM); ok {
			proxy = strings.TrimSuffix(llm.Endpoint, "/v1")
		}
	}
	post := func(path, key, body string, into any) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, proxy+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode >= 300 {
			return fmt.Errorf("%s: %s", path, res.Status)
		}
		return json.UnmarshalRead(res.Body, into)
	}
	var session struct {
		ID      string `json:"session_id"`
		Key     string `json:"key"`
		Version string `json:"version"`
	}
	if err := post("/v1/agl/sessions", "", fmt.Sprintf(`{"user":"u%d"}`, n), &session); err != nil {
		return err
	}
	if bundle, err = store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: session.Version}); err != nil {
		return err
	}
	resource, _ := bundle.Resources.Get("system")
	prompt, ok := resource.(agl.PromptTemplate)
	if !ok {
		return fmt.Errorf("version %s has no prompt", session.Version)
	}
	var reply struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := post("/v1/chat/completions", session.Key, fmt.Sprintf(`{"model":"gpt","messages":[{"role":"system","content":%q},{"role":"user","content":"hi"}]}`, prompt.Template), &reply); err != nil {
		return err
	}
	value := map[string]float64{"great": 1, "fine": 0.5, "bad": 0}[reply.Choices[0].Message.Content] + 0.1*float64(n%3)
	var answer map[string]any
	if err := post("/v1/agl/sessions/"+session.ID+"/reward", session.Key, fmt.Sprintf(`{"value":%v}`, value), &answer); err != nil {
		return err
	}
	return post("/v1/agl/sessions/"+session.ID+"/end", session.Key, "", &answer)
}

// TestPromptsOnline: edits of a prompt are tried on live sessions. A bad one is rolled back, a good one promoted, by the gates alone and over
// a restart, and each session was shown to the models once.
func TestPromptsOnline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	api := scripted(t)
	text := `
prompts: {system: {text: "Answer {question}", engine: f-string}}
proxy:
  listen: "127.0.0.1:0"
  models: [{name: gpt, base_url: "` + api.URL + `/v1", text_only: true}, {name: critic, base_url: "` + api.URL + `/v1", text_only: true}]
  sessions: {idle_timeout: 1m, reward_window: 1m}
store: {listen: "127.0.0.1:0"}
algorithm: {apo: {gradient_model: critic, rounds: 2, live: {sessions: 8, release: {share: 0.5, min_sessions: 20, guards: {errors: 0.5}}}}}
`
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// run runs it until it ends, or has a release that watch stops it at.
	run := func(cfg Config, atCanary bool) (*Result, error) {
		ctx, stop := context.WithCancel(t.Context())
		var users sync.WaitGroup
		defer users.Wait()
		defer stop()
		running, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		cfg.Listening = func(url string) {
			store, err := client.New(client.Config{URL: url})
			if err != nil {
				t.Error(err)
				return
			}
			var n atomic.Int32
			for range 4 {
				users.Go(func() {
					for ctx.Err() == nil {
						if err := prompted(ctx, store, int(n.Add(1))); err != nil && ctx.Err() == nil {
							continue // nothing is served yet, or the run has ended
						}
						if current, err := store.CurrentRelease(ctx); err == nil && current.Release != "" && atCanary {
							interrupt()
						}
					}
				})
			}
		}
		return Run(running, cfg)
	}
	result, err := run(Config{File: file, Source: output.Source{Path: path, Text: []byte(text)}}, true)
	if result == nil || result.State != output.StateInterrupted {
		t.Fatalf("%+v, %v", result, err)
	}
	file.Output = result.Output
	if result, err = run(Config{File: file, Resume: true}, false); err != nil || result.State != output.StateFinished {
		t.Fatalf("%+v, %v", result, err)
	}
	list, _ := releasesOf(t, result.Output)
	if len(list) != 2 || list[0].State != release.StatePromoted || list[1].State != release.StateRolledBack {
		t.Fatalf("the releases are %+v", list)
	}
	for _, r := range list {
		if last := r.Decisions[len(r.Decisions)-1]; last.By != release.ByGates {
			t.Errorf("it was decided by %s: %s", last.By, last.Reason)
		}
	}
	if best := result.Best.Prompts; len(best) == 0 || !strings.Contains(fmt.Sprint(best), "KINDLY") {
		t.Errorf("the best prompts are %v", best)
	}
	rounds, err := algorithm.ReadLines[apo.LiveRound](filepath.Join(result.Output, "metrics.jsonl"))
	if err != nil || len(rounds) != 4 || rounds[3].State != apo.RoundPromoted || rounds[1].State != apo.RoundRolledBack {
		t.Fatalf("rounds: %+v, %v", rounds, err)
	}
	shown := map[string]int{}
	for _, r := range rounds {
		for _, id := range r.Learned {
			shown[id]++
		}
	}
	for id, n := range shown {
		if n != 1 {
			t.Errorf("session %s was shown %d times", id, n)
		}
	}
	if len(shown) != 8 {
		t.Errorf("%d sessions were shown, want 4 in each of 2 rounds", len(shown))
	}
	if report := read(t, result.Report); !strings.Contains(report, "is promoted") || !strings.Contains(report, "KINDLY") {
		t.Errorf("report:\n%s", report)
	}
}
