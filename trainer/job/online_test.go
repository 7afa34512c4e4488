package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
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
						if err := session(ctx, &http.Client{Transport: connections}, url, fmt.Sprintf("%d-%d", n, i)); err != nil && ctx.Err() == nil {
							continue // the model is not served yet, or the run has ended
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
	post := func(url string, body any) ([]byte, http.Header, error) {
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
		req.Header.Set("X-Agl-Session-Done", "true")
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
	reply, header, err := post(strings.TrimSuffix(model.Endpoint, "/v1")+"/v1/chat/completions", map[string]any{"model": model.Model, "max_tokens": 1, "messages": []any{map[string]any{"role": "user", "content": "say"}}})
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
	reward := 0.0
	if strings.ContainsAny(completion.Choices[0].Message.Content, "aceg") {
		reward = 1
	}
	_, _, err = post(storeURL+"/v1/agl/rollouts/"+header.Get("Agl-Rollout")+"/rewards", map[string]any{"value": reward})
	return err
}
