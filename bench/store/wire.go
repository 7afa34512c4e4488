package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// wireWorker makes one request per operation, as the reference's clients do. Of
// several servers it takes one after the other, whatever the request is about.
type wireWorker struct {
	urls   []string
	next   atomic.Uint64
	client *http.Client
}

func newWireWorker(urls []string, runners int) *wireWorker {
	return &wireWorker{
		urls:   urls,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: runners + 8, MaxIdleConns: 0}},
	}
}

// call makes one request and returns the body, which is valid until the next call with the same buffer.
func (w *wireWorker) call(ctx context.Context, t *timings, name, method, path string, body []byte, status int) ([]byte, error) {
	began := time.Now()
	url := w.urls[w.next.Add(1)%uint64(len(w.urls))]
	req, err := http.NewRequestWithContext(ctx, method, url+"/v1/agl"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	reply, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if resp.StatusCode != status {
		return nil, fmt.Errorf("%s: %s: %.300s", name, resp.Status, reply)
	}
	if t != nil {
		t.add(name, began)
	}
	return reply, nil
}

func (w *wireWorker) setup(ctx context.Context) error {
	_, err := w.call(ctx, nil, "add resources", http.MethodPost, "/resources", []byte(benchResources), http.StatusCreated)
	return err
}

func (w *wireWorker) enqueue(ctx context.Context, t *timings, index int) error {
	body := `{"rollouts":[{"input":` + string(taskInput(index)) + `,"mode":"train"}]}`
	_, err := w.call(ctx, t, "enqueue", http.MethodPost, "/queues/rollouts/enqueue", []byte(body), http.StatusCreated)
	return err
}

func (w *wireWorker) rollout(ctx context.Context, t *timings, runner int) (string, error) {
	reply, err := w.call(ctx, t, "dequeue", http.MethodPost, "/queues/rollouts/dequeue", []byte(`{"limit":1,"worker_id":"runner-`+strconv.Itoa(runner)+`"}`), http.StatusOK)
	if err != nil {
		return "", err
	}
	fields := gjson.GetManyBytes(reply, "0.rollout_id", "0.attempt.attempt_id", "0.resources_id")
	id, attempt, resources := fields[0].String(), fields[1].String(), fields[2].String()
	if id == "" {
		return "", nil
	}
	if _, err := w.call(ctx, t, "get resources", http.MethodGet, "/resources/"+resources, nil, http.StatusOK); err != nil {
		return "", err
	}
	next := []byte(`{"rollout_id":"` + id + `","attempt_id":"` + attempt + `"}`)
	for n := range spansPerRollout {
		reply, err := w.call(ctx, t, "next sequence id", http.MethodPost, "/spans/next", next, http.StatusOK)
		if err != nil {
			return "", err
		}
		sequence, err := strconv.ParseInt(gjson.GetBytes(reply, "sequence_id").Raw, 10, 64)
		if err != nil {
			return "", fmt.Errorf("next sequence id: %w in %s", err, reply)
		}
		if _, err := w.call(ctx, t, "add span", http.MethodPost, "/spans", spanJSON(id, attempt, sequence, n), http.StatusCreated); err != nil {
			return "", err
		}
	}
	_, err = w.call(ctx, t, "update attempt", http.MethodPost, "/rollouts/"+id+"/attempts/"+attempt, []byte(`{"status":"succeeded"}`), http.StatusOK)
	return id, err
}

func (w *wireWorker) collect(ctx context.Context, t *timings, id string) error {
	reply, err := w.call(ctx, t, "wait", http.MethodPost, "/waits/rollouts", []byte(`{"rollout_ids":["`+id+`"],"timeout":0}`), http.StatusOK)
	if err != nil {
		return err
	}
	if status := gjson.GetBytes(reply, "0.status").String(); status != string(agl.RolloutSucceeded) {
		return fmt.Errorf("wait: rollout %s is %q", id, status)
	}
	reply, err = w.call(ctx, t, "query spans", http.MethodGet, "/spans?rollout_id="+id+"&attempt_id=latest", nil, http.StatusOK)
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
