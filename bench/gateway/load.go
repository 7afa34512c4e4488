package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/bench/internal/bench"
)

// server is one of the servers that are compared.
type server struct {
	name    string
	process *bench.Process
	created int // rollouts by the workload create
	calls   int
	client  http.Transport
}

// ask makes a request and returns the answer.
func (s *server) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	return bench.Ask(ctx, &s.client, method, s.process.URL+path, []byte(body))
}

// prepare creates the rollouts that are polled and registers the model server.
func (s *server) prepare(ctx context.Context, backend string) error {
	s.client.MaxIdleConnsPerHost = 128
	var list []string
	for i := range pending {
		list = append(list, rollout(fmt.Sprintf("p%d", i)))
	}
	for _, x := range [][2]string{
		{"/api/rollouts", "[" + strings.Join(list, ",") + "]"},
		{"/api/models", fmt.Sprintf(`[{"model":%q,"endpoint":%q}]`, model, backend+"/v1")},
	} {
		if _, err := s.ask(ctx, http.MethodPost, x[0], x[1]); err != nil {
			return err
		}
	}
	return nil
}

// rollout returns the trainer's request to create a rollout.
func rollout(id string) string {
	return fmt.Sprintf(`{"rollout_id":%q,"input":{"data_id":%q,"question":"What is the capital of the country whose flag has a maple leaf on it?","answer":"Ottawa"},`+
		`"is_train":true,"config":{"timeout_seconds":1200,"local":{"agent_class":"agent:Agent","env_map":{"TASK":"input"}}},"metadata":{}}`, id, id)
}

func poll(ctx context.Context, s *server, worker, n int) ([]byte, error) {
	return s.ask(ctx, http.MethodGet, fmt.Sprintf("/api/rollouts/p%d", (worker*31+n)%pending), "")
}

func create(ctx context.Context, s *server, _, _ int) ([]byte, error) {
	const batch = 256
	var list []string
	for range batch {
		s.created++
		list = append(list, rollout(fmt.Sprintf("c%d", s.created)))
	}
	return s.ask(ctx, http.MethodPost, "/api/rollouts", "["+strings.Join(list, ",")+"]")
}

// call is a model call of an agent. Each worker has rollouts of its own, with several calls each.
func call(ctx context.Context, s *server, worker, n int) ([]byte, error) {
	return s.ask(ctx, http.MethodPost, fmt.Sprintf("/proxy/rollout/p%d/attempt/0/mode/train/openai/v1/chat/completions", (worker*31+n/8)%pending),
		`{"model":"gpt","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Say hello."}],"temperature":0.2,"max_tokens":64}`)
}

// drive sends requests over a number of connections for a time.
func (s *server) drive(ctx context.Context, w workload, span time.Duration) (bench.Calls, error) {
	before, err := s.process.CPU()
	if err != nil {
		return bench.Calls{}, err
	}
	out, err := bench.Load(ctx, w.connections, span, 0, func(worker, n int) error {
		_, err := w.call(ctx, s, worker, n)
		return err
	})
	if err != nil {
		return bench.Calls{}, err
	}
	after, err := s.process.CPU()
	out.CPU = after - before
	if strings.HasPrefix(w.name, "call") {
		s.calls += len(out.Times)
	}
	return out, err
}

// check fails unless every call was recorded once.
func (s *server) check(ctx context.Context) error {
	found := 0
	for i := range pending {
		body, err := s.ask(ctx, http.MethodGet, fmt.Sprintf("/api/rollouts/p%d/events", i), "")
		if err != nil {
			return err
		}
		var events []jsontext.Value
		if err := json.Unmarshal(body, &events); err != nil {
			return err
		}
		found += len(events)
	}
	if found != s.calls {
		return fmt.Errorf("%d calls are recorded of %d that were answered", found, s.calls)
	}
	return nil
}
