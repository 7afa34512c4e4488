package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/tinker/chat"
)

// The models that the server plays.
const (
	critic = "critic"
	editor = "editor"
	agent  = "agent"
)

// models is an OpenAI-compatible server that plays the models of a world, each call with the same latency.
type models struct {
	world   apotest.World
	latency time.Duration
	server  *httptest.Server

	mu    sync.Mutex // guards the fields below
	seed  uint64
	calls map[string]int
}

func serveModels(world apotest.World, latency time.Duration) *models {
	m := &models{world: world, latency: latency}
	m.server = httptest.NewServer(m)
	return m
}

// begin starts a run: it resets the counts of calls.
func (m *models) begin(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seed, m.calls = seed, map[string]int{}
}

// counts returns the calls since begin, by model and in total.
func (m *models) counts() (calls map[string]int, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.calls {
		total += n
	}
	return m.calls, total
}

// source counts a call of a model and returns its random source.
func (m *models) source(model string) rand.Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[model]++
	return rand.NewPCG(m.seed, uint64(len(model))<<32+uint64(m.calls[model]))
}

// ServeHTTP answers a chat.
func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model    string         `json:"model"`
		Messages []chat.Message `json:"messages"`
	}
	if err := json.UnmarshalRead(r.Body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var texts []string
	for _, message := range request.Messages {
		texts = append(texts, message.Content)
	}
	reply, err := m.reply(request.Model, strings.Join(texts, "\n"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if backoff.Sleep(r.Context(), m.latency) != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%q},`+
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}`, request.Model, reply)
}

func (m *models) reply(model, text string) (string, error) {
	source := m.source(model)
	switch model {
	case critic:
		return m.world.Critique(source), nil
	case editor:
		return apotest.Edited(text)
	case agent:
		reward := m.world.Reward(apotest.Prompts{"main": text}, source)
		return strconv.FormatFloat(reward, 'g', -1, 64), nil
	default:
		return "", fmt.Errorf("there is no model %q", model)
	}
}
