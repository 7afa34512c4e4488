package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/internal/rawjson"
)

// wireWorker makes one request per operation, as the reference's clients do. Of
// several servers it takes one after the other, whatever the request is about.
type wireWorker struct {
	urls   []string
	next   atomic.Uint64
	client http.Transport
}

func newWireWorker(urls []string, runners int) *wireWorker {
	return &wireWorker{urls: urls, client: http.Transport{MaxIdleConnsPerHost: runners + 8}}
}

// call makes one request and returns the answer.
func (w *wireWorker) call(ctx context.Context, t *timings, name, method, path string, body []byte) ([]byte, error) {
	began := time.Now()
	reply, err := bench.Ask(ctx, &w.client, method, w.urls[w.next.Add(1)%uint64(len(w.urls))]+"/v1/agl"+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t != nil {
		t.add(name, began)
	}
	return reply, nil
}

func (w *wireWorker) setup(ctx context.Context) error {
	_, err := w.call(ctx, nil, "add resources", http.MethodPost, "/resources", []byte(benchResources))
	return err
}

func (w *wireWorker) enqueue(ctx context.Context, t *timings, index int) error {
	body := `{"rollouts":[{"input":` + string(taskInput(index)) + `,"mode":"train"}]}`
	_, err := w.call(ctx, t, "enqueue", http.MethodPost, "/queues/rollouts/enqueue", []byte(body))
	return err
}

func (w *wireWorker) rollout(ctx context.Context, t *timings, runner int) (string, error) {
	reply, err := w.call(ctx, t, "dequeue", http.MethodPost, "/queues/rollouts/dequeue", []byte(`{"limit":1,"worker_id":"runner-`+strconv.Itoa(runner)+`"}`))
	if err != nil {
		return "", err
	}
	fields := gjson.GetManyBytes(reply, "0.rollout_id", "0.attempt.attempt_id", "0.resources_id")
	id, attempt, resources := fields[0].String(), fields[1].String(), fields[2].String()
	if id == "" {
		return "", nil
	}
	if _, err := w.call(ctx, t, "get resources", http.MethodGet, "/resources/"+resources, nil); err != nil {
		return "", err
	}
	next := []byte(`{"rollout_id":"` + id + `","attempt_id":"` + attempt + `"}`)
	for n := range spansPerRollout {
		reply, err := w.call(ctx, t, "next sequence id", http.MethodPost, "/spans/next", next)
		if err != nil {
			return "", err
		}
		sequence, err := strconv.ParseInt(gjson.GetBytes(reply, "sequence_id").Raw, 10, 64)
		if err != nil {
			return "", fmt.Errorf("next sequence id: %w in %s", err, reply)
		}
		if _, err := w.call(ctx, t, "add span", http.MethodPost, "/spans", spanJSON(id, attempt, sequence, n)); err != nil {
			return "", err
		}
	}
	_, err = w.call(ctx, t, "update attempt", http.MethodPost, "/rollouts/"+id+"/attempts/"+attempt, []byte(`{"status":"succeeded"}`))
	return id, err
}

func (w *wireWorker) collect(ctx context.Context, t *timings, id string) error {
	reply, err := w.call(ctx, t, "wait", http.MethodPost, "/waits/rollouts", []byte(`{"rollout_ids":["`+id+`"],"timeout":0}`))
	if err != nil {
		return err
	}
	if status := gjson.GetBytes(reply, "0.status").String(); status != string(agl.RolloutSucceeded) {
		return fmt.Errorf("wait: rollout %s is %q", id, status)
	}
	reply, err = w.call(ctx, t, "query spans", http.MethodGet, "/spans?rollout_id="+id+"&attempt_id=latest", nil)
	if err != nil {
		return err
	}
	var spans []agl.Span
	for _, item := range gjson.GetBytes(reply, "items").Array() {
		var s agl.Span
		if err := rawjson.Unmarshal([]byte(item.Raw), &s); err != nil {
			return fmt.Errorf("query spans: %w", err)
		}
		spans = append(spans, s)
	}
	return verifySpans(id, spans)
}
