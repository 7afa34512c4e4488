package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/proxy"
	"github.com/google/go-cmp/cmp"
)

// Calls over a limit wait their turn, in the order in which they came, and no
// longer than they may.
func TestLimitInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		var order []string
		p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			running++
			most = max(most, running)
			order = append(order, r.Header.Get("X-Request-ID"))
			mu.Unlock()
			time.Sleep(9 * time.Second) // three times while the others wait for 30 s
			mu.Lock()
			running--
			mu.Unlock()
			return ok(), nil
		}, func(c *proxy.Config) { c.Models[0].Limits.InFlight = 2 }, "backend")
		codes := make([]int, 10)
		var group sync.WaitGroup
		for i := range codes {
			group.Go(func() {
				w := ask(t.Context(), p, attemptPath, hello, http.Header{"X-Request-Id": {fmt.Sprint(i)}})
				codes[i] = w.Code
				if w.Code == 503 && w.Header().Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			})
			time.Sleep(time.Millisecond) // calls that end at different times have an order in which the next ones begin
		}
		group.Wait()
		if diff := cmp.Diff([]int{200, 200, 200, 200, 200, 200, 200, 200, 503, 503}, codes); diff != "" || most != 2 {
			t.Errorf("%d at a time; statuses %s", most, diff)
		}
		if got := strings.Join(order, ""); got != "01234567" {
			t.Errorf("served in the order %s", got)
		}
		closed(t, p)
	})
}

func TestLimitRequestsPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) { return ok(), nil },
			func(c *proxy.Config) { c.Models[0].Limits.RequestsPerMinute = 6 }, "backend")
		began := time.Now()
		for i := range 10 {
			if w := call(t.Context(), p, attemptPath); w.Code != 200 {
				t.Fatalf("call %d: %d %s", i, w.Code, w.Body)
			}
		}
		// Six are in the bucket, the others come every ten seconds.
		if took := time.Since(began).Round(time.Second); took != 40*time.Second {
			t.Errorf("ten calls took %v", took)
		}
		// Without that much patience it says when to come back.
		var group sync.WaitGroup
		var refused []string
		var mu sync.Mutex
		time.Sleep(time.Second)
		for range 5 {
			group.Go(func() {
				if w := call(t.Context(), p, attemptPath); w.Code != 200 {
					mu.Lock()
					refused = append(refused, fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After")))
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if diff := cmp.Diff([]string{"429 10", "429 10"}, refused); diff != "" {
			t.Error(diff)
		}
		closed(t, p)
	})
}

func TestLimitTokensPerMinute(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const usage = `"usage":{"prompt_tokens":90,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":3}}`
				p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
					if stream {
						return respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "data: {\"choices\":[],"+usage+"}\n\ndata: [DONE]\n\n"), nil
					}
					return respond(200, nil, `{"choices":[],`+usage+`}`), nil
				}, func(c *proxy.Config) { c.Models[0].Limits.TokensPerMinute = 60 }, "backend")
				began := time.Now()
				var at []time.Duration
				for range 2 {
					if w := call(t.Context(), p, attemptPath); w.Code != 200 {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
					at = append(at, time.Since(began).Round(time.Second))
					time.Sleep(40 * time.Second)
				}
				// The first call overdraws the account by 60, which takes a minute to
				// fill: 40 s before the second call, which waits for the rest and one more.
				if diff := cmp.Diff([]time.Duration{0, 61 * time.Second}, at); diff != "" {
					t.Error(diff)
				}
				closed(t, p)
			})
		})
	}
}

// Limits and what has been used of them outlive a swap of the models.
func TestLimitsOutliveSwap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
			<-release
			return ok(), nil
		}, func(c *proxy.Config) {
			c.Models[0].Limits.InFlight = 1
			c.QueueTimeout = time.Minute
		}, "backend")
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if w := call(t.Context(), p, attemptPath); w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		if err := p.SetModels([]proxy.Model{{Name: "m", BaseURL: "http://backend/v1", BackendModel: "lora-2", Version: "2", Limits: proxy.Limits{InFlight: 2}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := p.PauseState().Running; got != 2 {
			t.Errorf("%d calls run, want the 2 that the new limit allows", got)
		}
		close(release)
		group.Wait()
		closed(t, p)
	})
}
