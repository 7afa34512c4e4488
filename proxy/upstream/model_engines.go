package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/secret"
)

// control sends a request to a URL of a backend's engine: a health probe, a pause or its end.
// A POST has an empty object as its body, because some engines decode it.
func (p *Pool) control(ctx context.Context, method string, at *url.URL, b *backend) error {
	key, err := p.keyOf(b)
	if err != nil {
		return err
	}
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		b.setKey(req.Header, key)
	}
	res, err := roundTrip(p.cfg.Transport, req)
	if err != nil {
		return err
	}
	b.redact(res, key)
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 512))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("HTTP %s: %s", res.Status, text)
	}
	return nil
}

// engineTimeout bounds how long an engine may take to pause or to resume.
const engineTimeout = 30 * time.Second

// postAll posts to a URL of every backend concurrently, and to each URL only once.
func (p *Pool) postAll(ctx context.Context, of func(b *backend) *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		failed []EngineFailure
		done   = make(map[string]bool)
	)
	p.models.Load().backends(func(b *backend) {
		at := of(b)
		if at == nil || done[at.String()] {
			return
		}
		done[at.String()] = true
		group.Go(func() {
			if err := p.control(ctx, http.MethodPost, at, b); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, EngineFailure{URL: secret.RedactURL(at.String()), Err: err})
			}
		})
	})
	group.Wait()
	if len(failed) == 0 {
		return nil
	}
	return &EnginesError{Failures: failed}
}

// EngineFailure is an engine that could not be paused or resumed.
type EngineFailure struct {
	URL string // without its secrets
	Err error
}

// EnginesError says which engines could not be paused or resumed. The proxy itself and
// the other engines were.
type EnginesError struct {
	Failures []EngineFailure
}

func (e *EnginesError) Error() string {
	list := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		list[i] = f.URL + ": " + f.Err.Error()
	}
	return fmt.Sprintf("%d engines failed: %s", len(list), strings.Join(list, "; "))
}

// Unwrap returns the engines' errors.
func (e *EnginesError) Unwrap() []error {
	list := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		list[i] = f.Err
	}
	return list
}
