package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Calls is what [Load] measured. The caller sets CPU.
type Calls struct {
	Took   time.Duration
	CPU    time.Duration   // of the server
	Times  []time.Duration // of each call, sorted
	Failed []error         // one for each failed call, which Times leaves out
}

// Load makes calls on a number of goroutines for a time. call gets the number of its goroutine, and its own number on that. A goroutine
// with more failed calls than are tolerated ends, and fails the load.
func Load(ctx context.Context, workers int, span time.Duration, tolerated int, call func(worker, n int) error) (Calls, error) {
	times, failed := make([][]time.Duration, workers), make([][]error, workers)
	began := time.Now()
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			for n := 0; time.Since(began) < span && ctx.Err() == nil && len(failed[i]) <= tolerated; n++ {
				at := time.Now()
				if err := call(i, n); err != nil {
					failed[i] = append(failed[i], err)
					continue
				}
				times[i] = append(times[i], time.Since(at))
			}
		})
	}
	group.Wait()
	c := Calls{Took: time.Since(began), Times: slices.Concat(times...), Failed: slices.Concat(failed...)}
	slices.Sort(c.Times)
	for _, errs := range failed {
		if len(errs) > tolerated {
			return c, fmt.Errorf("one of %d workers gave up after %d failed calls: %w", workers, len(errs), errors.Join(errs...))
		}
	}
	return c, ctx.Err()
}

// Rate returns the number of calls in a second.
func (c *Calls) Rate() float64 { return float64(len(c.Times)) / c.Took.Seconds() }

// CPUEach returns the CPU time of the server for a call.
func (c *Calls) CPUEach() time.Duration { return c.CPU / time.Duration(max(len(c.Times), 1)) }

// Quantile returns the time within which this percentage of the calls ends.
func (c *Calls) Quantile(percent int) time.Duration { return Quantile(c.Times, percent) }

// Add adds the result of another turn of the same load.
func (c *Calls) Add(more Calls) {
	c.Took += more.Took
	c.CPU += more.CPU
	c.Times = append(c.Times, more.Times...)
	slices.Sort(c.Times)
	c.Failed = append(c.Failed, more.Failed...)
}

// Ask makes a request, with a JSON body if there is one, and returns the body of the reply. A status of 300 or more is an error.
func Ask(ctx context.Context, over http.RoundTripper, method, url string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := over.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %.300s", method, r.URL.Path, res.Status, answer)
	}
	return answer, err
}
