package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
)

// Flusher is an LLM proxy. FlushAttempt returns once every model call that the attempt has begun is stored, and fails
// if one of them was lost, or what the attempt emitted last.
type Flusher interface {
	FlushAttempt(ctx context.Context, rolloutID, attemptID string) error
}

// proxies returns the endpoints of the proxies among the resources.
func proxies(resources agl.Resources) []string {
	var endpoints []string
	for _, n := range resources {
		if p, ok := n.Resource.(agl.ProxyLLM); ok && !slices.Contains(endpoints, p.Endpoint) {
			endpoints = append(endpoints, p.Endpoint)
		}
	}
	return endpoints
}

// proxyFlusher waits for the records of proxies: through the flusher if there is one, otherwise over HTTP.
type proxyFlusher struct {
	flusher Flusher
	client  *http.Client
	token   func() string
	log     *slog.Logger
	flushed sync.Map // base URLs of proxies that have flushed an attempt
}

// flush repeats the request to a proxy that does not answer until ctx ends.
func (f *proxyFlusher) flush(ctx context.Context, endpoints []string, rolloutID, attemptID string) error {
	if f.flusher != nil {
		if err := f.flusher.FlushAttempt(ctx, rolloutID, attemptID); err != nil {
			return fmt.Errorf("flush the proxy: %w", err)
		}
		return nil
	}
	for _, endpoint := range endpoints {
		base := strings.TrimRight(strings.TrimSuffix(strings.TrimRight(endpoint, "/"), "/v1"), "/")
		logged := false
		err := retry(ctx, func(ctx context.Context) error {
			err := f.post(ctx, base, rolloutID, attemptID)
			if agl.Transient(err) && !logged && ctx.Err() == nil {
				logged = true
				f.log.WarnContext(ctx, "the proxy does not say that the attempt's model calls are stored; it is asked again",
					"rollout_id", rolloutID, "attempt_id", attemptID, "proxy", base, "error", err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("flush the proxy %s: %w", base, err)
		}
	}
	return nil
}

func (f *proxyFlusher) post(ctx context.Context, base, rolloutID, attemptID string) error {
	body, err := json.Marshal(struct {
		RolloutID string `json:"rollout_id"`
		AttemptID string `json:"attempt_id"`
	}{rolloutID, attemptID})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/admin/attempts/flush", bytes.NewReader(body))
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "the endpoint is not a URL: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token := f.token(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := f.client.Do(req)
	if err != nil && ctx.Err() == nil {
		return agl.Errorf(agl.CodeUnavailable, "%w; the resources name this proxy: start it, or change their endpoint", err)
	}
	if err != nil {
		return agl.Errorf(agl.CodeUnavailable, "%w", err)
	}
	defer resp.Body.Close()
	const enough = 4 << 10
	reply, err := io.ReadAll(io.LimitReader(resp.Body, enough))
	if redirected := httpserver.Redirected(req, resp, "the proxy"); redirected != "" {
		return agl.Errorf(agl.CodeInvalid, "%s", redirected)
	}
	switch status := resp.StatusCode; {
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		if _, flushes := f.flushed.Load(base); flushes { // something in between answers in its place, such as a load balancer
			return agl.Errorf(agl.CodeUnavailable, "HTTP %s: %s", resp.Status, bytes.TrimSpace(reply))
		}
		return nil // a proxy of another kind
	case bytes.Contains(reply, []byte(`"records_lost"`)): // repeating the request brings none of them back
		return agl.Errorf(agl.CodeIllegalState, "HTTP %s: %s", resp.Status, bytes.TrimSpace(reply))
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return agl.Errorf(agl.CodeUnavailable, "HTTP %s: %s", resp.Status, bytes.TrimSpace(reply))
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return agl.Errorf(agl.CodeUnauthorized, "HTTP %s: the runner needs the proxy's token: %s", resp.Status, bytes.TrimSpace(reply))
	case status >= http.StatusMultipleChoices:
		return agl.Errorf(agl.CodeInvalid, "HTTP %s: %s", resp.Status, bytes.TrimSpace(reply))
	case err != nil:
		return agl.Errorf(agl.CodeUnavailable, "%w", err)
	}
	f.flushed.Store(base, true)
	return nil
}
