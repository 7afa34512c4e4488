package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
)

// latencyBuckets are the bounds, in seconds, of the reference's histograms.
func latencyBuckets() []float64 {
	return []float64{
		0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.007,
		0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5, 7, 10, 12, 15, 20, 25, 30, 40, 50, 60, 90,
		120, 180, 240, 300,
	}
}

// metrics counts requests and operations under the names of the reference.
type metrics struct {
	requests, operations, rollouts                   *prometheus.CounterVec
	requestLatency, operationLatency, rolloutSeconds *prometheus.HistogramVec
	series                                           sync.Map // seriesKey → *series, the vectors' children looked up once
}

type seriesKey struct {
	family byte // 'h' for HTTP requests, 's' for the store's operations
	name   string
	method string
	status string
}

type series struct {
	total   prometheus.Counter
	latency prometheus.Observer
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets()}, labels)
	}
	m := &metrics{
		requests:         counter("agl_http_total", "Requests answered.", "path", "method", "status"),
		requestLatency:   histogram("agl_http_latency", "Seconds from request to answer, blocking included.", "path", "method", "status"),
		operations:       counter("agl_store_total", "Operations of the store.", "method", "store_pubmeth", "status"),
		operationLatency: histogram("agl_store_latency", "Seconds an operation of the store took.", "method", "store_pubmeth", "status"),
		rollouts:         counter("agl_rollouts_total", "Rollouts that finished.", "status", "mode"),
		rolloutSeconds:   histogram("agl_rollouts_duration", "Seconds from a rollout's start to its end.", "status", "mode"),
	}
	for _, c := range []prometheus.Collector{m.requests, m.requestLatency, m.operations, m.operationLatency, m.rollouts, m.rolloutSeconds} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) http(template, method string, status int, took time.Duration) {
	if template == "" {
		template = "unknown"
	}
	key := seriesKey{'h', template, knownMethod(method), statusText(status)}
	m.observe(key, m.requests, m.requestLatency, took, key.name, key.method, key.status)
}

func (m *metrics) store(operation, status string, took time.Duration) {
	key := seriesKey{'s', operation, "", status}
	m.observe(key, m.operations, m.operationLatency, took, key.name, key.name, key.status)
}

func (m *metrics) observe(key seriesKey, total *prometheus.CounterVec, latency *prometheus.HistogramVec, took time.Duration, a, b, c string) {
	found, ok := m.series.Load(key)
	if !ok {
		found, _ = m.series.LoadOrStore(key, &series{total.WithLabelValues(a, b, c), latency.WithLabelValues(a, b, c)})
	}
	if s, ok := found.(*series); ok {
		s.total.Inc()
		s.latency.Observe(took.Seconds())
	}
}

// knownMethod keeps a client from filling the memory with made-up methods.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions:
		return method
	}
	return "other"
}

// statusText spells a status without allocating for the usual ones.
func statusText(status int) string {
	switch status {
	case 200:
		return "200"
	case 201:
		return "201"
	case 0:
		return "520" // nothing was written
	}
	return strconv.Itoa(status)
}

// ObserveRollouts follows the store's events and counts finished rollouts in
// agl_rollouts_total and agl_rollouts_duration, until ctx ends or the store
// closes. Run it beside the server to have these metrics.
func (s *Server) ObserveRollouts(ctx context.Context) error {
	for event, err := range s.store.Events(ctx, agl.EventsParams{}) {
		switch {
		case ctx.Err() != nil || errors.Is(err, agl.ErrUnavailable):
			return nil
		case err != nil:
			return fmt.Errorf("observe rollouts: %w", err)
		case event.Kind != agl.EventRollout || !agl.RolloutStatus(event.Status).Finished():
			continue
		}
		r, err := s.store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: event.RolloutID})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, agl.ErrNotFound):
			continue // deleted since
		case err != nil:
			return fmt.Errorf("observe rollouts: %w", err)
		}
		mode := string(r.Mode)
		if mode == "" {
			mode = "unknown"
		}
		s.metrics.rollouts.WithLabelValues(event.Status, mode).Inc()
		if r.EndTime.Valid {
			s.metrics.rolloutSeconds.WithLabelValues(event.Status, mode).Observe(r.EndTime.V.Sub(r.StartTime).Seconds())
		}
	}
	return nil
}
