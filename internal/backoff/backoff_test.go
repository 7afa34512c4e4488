package backoff

import (
	"context"
	"errors"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Sleep(t.Context(), 3*time.Second); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("slept %s, error %v", time.Since(start), err)
		}
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		start = time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, stop) || time.Since(start) != time.Second {
			t.Errorf("slept %s, error %v, want the cause after 1s", time.Since(start), err)
		}
		for _, d := range []time.Duration{-1, 0, time.Hour} {
			start = time.Now()
			if err := Sleep(ctx, d); !errors.Is(err, stop) || time.Since(start) != 0 {
				t.Errorf("%s with an ended context: slept %s, error %v", d, time.Since(start), err)
			}
		}
		if err := Sleep(t.Context(), 0); err != nil {
			t.Errorf("no sleep: %v", err)
		}
	})
}

func TestExponential(t *testing.T) {
	t.Parallel()
	e := Exponential{First: 100 * time.Millisecond, Max: time.Second}
	const ms = time.Millisecond
	bounds := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms}
	for n, want := range bounds {
		if got := e.Delay(n); got != want {
			t.Errorf("delay %d is %s, want %s", n, got, want)
		}
	}
	for _, jitter := range []float64{0.5, 1} {
		e.Jitter = jitter
		for n, bound := range bounds {
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for range 1000 {
				d := e.Delay(n)
				least, most = min(least, d), max(most, d)
			}
			floor := bound - time.Duration(float64(bound)*jitter)
			if least < floor || most > bound || most-least < (bound-floor)*9/10 {
				t.Errorf("jitter %v, delay %d: drawn from %s to %s, want %s to %s", jitter, n, least, most, floor, bound)
			}
		}
	}
	for _, edge := range []struct {
		e    Exponential
		n    int
		want time.Duration
	}{
		{Exponential{}, 5, 0},
		{Exponential{First: time.Second}, 5, 0},
		{Exponential{First: time.Hour, Max: time.Second}, 0, time.Second},
		{Exponential{First: 1, Max: math.MaxInt64}, 1000, math.MaxInt64},
		{Exponential{Max: time.Second}, 3, 0},
	} {
		if got := edge.e.Delay(edge.n); got != edge.want {
			t.Errorf("%+v: delay %d is %s, want %s", edge.e, edge.n, got, edge.want)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := (Exponential{First: time.Second, Max: time.Minute}).Wait(t.Context(), 2); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("waited %s, error %v", time.Since(start), err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		header, value string
		want          time.Duration
	}{
		{"Retry-After", "2", 2 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "0", 0},
		{"Retry-After", "-1", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "1e300", maxRetryAfter},
		{"Retry-After", now.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		{"Retry-After", now.Add(-time.Minute).Format(http.TimeFormat), 0},
		{"Retry-After", now.Add(1e6 * time.Hour).Format(http.TimeFormat), maxRetryAfter},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
		{"Retry-After-Ms", "x", 0},
		{"X-Other", "3", 0},
	} {
		h := http.Header{}
		h.Set(c.header, c.value)
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", c.header, c.value, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Hour: "3600"} {
		h := http.Header{}
		SetRetryAfter(h, d)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("%s is written as %q, want %q", d, got, want)
		}
		if back := RetryAfter(h, now); back < d {
			t.Errorf("%s is read back as %s", d, back)
		}
	}
}
