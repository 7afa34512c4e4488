package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
)

// completion is what the tests read of a chat completion.
type completion struct {
	Model          string  `json:"model"`
	Fingerprint    string  `json:"system_fingerprint"`
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Choices        []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		FinishReason string  `json:"finish_reason"`
		TokenIDs     []int32 `json:"token_ids"`
		Logprobs     struct {
			Content []struct {
				Logprob float32 `json:"logprob"`
			} `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
}

func chatAt(t *testing.T, url, key, body string, want int) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != want {
		t.Fatalf("%s: %s %s", body, resp.Status, text)
	}
	return string(text)
}

// A model that was made, trained over Tinker and saved chats under its path, with the tokens and the
// log-probabilities that the Tinker protocol gives; so does the base model, under its name, and after a restart.
func TestPolicyChat(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lm")
	create := &Main{Stdout: io.Discard, Stderr: io.Discard}
	if err := create.ParseFlags([]string{"policy", "create", dir, "--bytes", "--layers=1", "--dim=16", "--heads=1", "--ff=16", "--seed=5", "--name=tiny"}); err != nil {
		t.Fatal(err)
	}
	if err := create.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	format := chat.NewRoleMarks(chat.Bytes{})
	say, err := format.Demonstration([]chat.Message{{Role: "user", Content: "hi"}, {Role: "assistant", Content: "höi"}})
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := format.Prompt(chat.PromptParams{Messages: []chat.Message{{Role: "user", Content: "hi"}}})
	if err != nil {
		t.Fatal(err)
	}
	draw := tinker.SampleParams{Prompt: prompt, MaxTokens: 12, Temperature: 1, Stop: format.Stop(), Seed: new(uint64(3))}
	var path string
	var before []tinker.SampleResult
	for _, first := range []bool{true, false} {
		url, stop, err := startServer("policy", "serve", "--port=0", "--model="+dir, "--api-key=k")
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{URL: url, APIKey: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if first {
			m, err := c.CreateModel(t.Context(), tinker.CreateModelParams{BaseModel: "tiny"})
			if err != nil {
				t.Fatal(err)
			}
			for range 60 {
				if _, err := m.ForwardBackward(t.Context(), tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.CrossEntropy}, Data: []tinker.Datum{say}}); err != nil {
					t.Fatal(err)
				}
				if _, err := m.OptimStep(t.Context(), tinker.AdamParams{LearningRate: 0.03}); err != nil {
					t.Fatal(err)
				}
			}
			if path, err = m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: "polite"}); err != nil {
				t.Fatal(err)
			}
		}
		sampler, err := c.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		sampled, err := sampler.Sample(t.Context(), draw)
		if err != nil {
			t.Fatal(err)
		}
		seq := sampled.Sequences[0]
		var got completion
		body := fmt.Sprintf(`{"model":%q,"seed":3,"max_tokens":12,"logprobs":true,"return_token_ids":true,"messages":[{"role":"user","content":"hi"}]}`, path)
		if err := json.Unmarshal([]byte(chatAt(t, url, "k", body, 200)), &got); err != nil {
			t.Fatal(err)
		}
		choice := got.Choices[0]
		var logprobs []float32
		for _, l := range choice.Logprobs.Content {
			logprobs = append(logprobs, l.Logprob)
		}
		for _, diff := range []string{
			cmp.Diff(prompt, got.PromptTokenIDs), cmp.Diff(seq.Tokens, choice.TokenIDs), cmp.Diff(seq.Logprobs, logprobs),
			cmp.Diff([]string{"höi", "stop", path}, []string{choice.Message.Content, choice.FinishReason, got.Fingerprint}),
		} {
			if diff != "" {
				t.Errorf("by Tinker and by chat (-want +got):\n%s", diff)
			}
		}
		stream := chatAt(t, url, "k", strings.Replace(body, `"seed"`, `"stream":true,"seed"`, 1), 200)
		if !strings.Contains(stream, `"content":"ö"`) || !strings.HasSuffix(stream, "data: [DONE]\n\n") {
			t.Errorf("stream: %s", stream)
		}
		base := chatAt(t, url, "k", `{"model":"tiny","seed":3,"max_tokens":12,"messages":[{"role":"user","content":"hi"}]}`, 200)
		if strings.Contains(base, "höi") {
			t.Errorf("the base model was trained: %s", base)
		}
		missing := chatAt(t, url, "k", `{"model":"tinker://tiny-1/sampler_weights/none","messages":[{"role":"user","content":"hi"}]}`, 404)
		other := chatAt(t, url, "k", `{"model":"llama","messages":[{"role":"user","content":"hi"}]}`, 404)
		if !strings.Contains(other, "does not exist: the models are tiny and the tinker:// paths") {
			t.Error(other)
		}
		if !strings.Contains(missing, "model_not_found") || !strings.Contains(chatAt(t, url, "x", `{}`, 401), "invalid_api_key") {
			t.Errorf("%s", missing)
		}
		if body := chatAt(t, url, "k", `{"model":"tinker://tiny-1","messages":[{"role":"user","content":"hi"}]}`, 400); !strings.Contains(body, "invalid_value") {
			t.Errorf("no path: %s", body)
		}
		if !first {
			if diff := cmp.Diff(before, []tinker.SampleResult{sampled}); diff != "" {
				t.Errorf("after a restart (-want +got):\n%s", diff)
			}
		}
		before = []tinker.SampleResult{sampled}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stop()
	}
}

// Weights whose file was damaged are the server's fault, and not unknown.
func TestPolicyChatOfDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, stop, err := startServer("policy", "serve", "--port=0", "--dir="+dir, "--bytes", "--layers=1", "--dim=16", "--heads=1", "--ff=16")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := client.New(client.Config{URL: url, APIKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, strings.TrimPrefix(path, "tinker://")+".ckpt")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	body := chatAt(t, url, "k", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, path), 500)
	if !strings.Contains(body, "is damaged") {
		t.Error(body)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A model of tokens without text does not chat.
func TestPolicyWithoutText(t *testing.T) {
	t.Parallel()
	url, stop, err := startServer("policy", "serve", "--port=0", "--vocab=8", "--layers=1", "--dim=16", "--heads=1", "--ff=16")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if body := chatAt(t, url, "", `{}`, 404); !strings.Contains(body, "no_vocabulary") {
		t.Error(body)
	}
}
