package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
)

// latencyBuckets returns the bounds of the reference's histograms, in seconds.
func latencyBuckets() []float64 {
	return []float64{
		0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.007,
		0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5, 7, 10, 12, 15, 20, 25, 30, 40, 50, 60, 90,
		120, 180, 240, 300,
	}
}

// Metrics counts the requests of a [Server], under the reference's names. As an observer of the engine it also counts
// the store's operations and finished rollouts:
//
//	agl_http_total, agl_http_latency                path, method, status
//	agl_store_total, agl_store_latency              method, store_pubmeth, status
//	agl_collections_total, agl_collections_latency  store_pubmeth, operation, collection, store_privmeth, status
//	agl_rollouts_total, agl_rollouts_duration       status, mode
//
// Latencies and durations are histograms of seconds. Of a store that knows its queue, as the engine does, gauges show it:
//
//	agl_queue_rollouts, agl_queue_oldest_seconds
//	agl_workers                                     status
type Metrics struct {
	registry *prometheus.Registry

	requests, operations, driver, finished family

	calls callCounts
	queue queueGauges
}

// family is a counter and a histogram with the same labels.
type family struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	series   *sync.Map // [3]string → *series: the children, looked up once
}

type series struct {
	total    prometheus.Counter
	duration prometheus.Observer
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(registry *prometheus.Registry) (*Metrics, error) {
	m := &Metrics{registry: registry, queue: newQueueGauges(), calls: callCounts{since: time.Now()}}
	for _, gauge := range []prometheus.Collector{m.queue.queued, m.queue.oldest, m.queue.workers} {
		if err := registry.Register(gauge); err != nil {
			return nil, fmt.Errorf("rest/server: register the gauges of the queue: %w", err)
		}
	}
	for _, f := range []struct {
		family         *family
		name, duration string
		help           string
		labels         []string
	}{
		{&m.requests, "agl_http", "latency", "HTTP requests", []string{"path", "method", "status"}},
		{&m.operations, "agl_store", "latency", "Operations of the store", []string{"method", "store_pubmeth", "status"}},
		{&m.driver, "agl_collections", "latency", "Operations of the store's driver", []string{"store_pubmeth", "operation", "collection", "store_privmeth", "status"}},
		{&m.finished, "agl_rollouts", "duration", "Finished rollouts", []string{"status", "mode"}},
	} {
		*f.family = family{
			total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name + "_total", Help: f.help + ", counted."}, f.labels),
			duration: prometheus.NewHistogramVec(
				prometheus.HistogramOpts{Name: f.name + "_" + f.duration, Help: f.help + ", in seconds.", Buckets: latencyBuckets()}, f.labels),
			series: new(sync.Map),
		}
		for _, c := range []prometheus.Collector{f.family.total, f.family.duration} {
			if err := registry.Register(c); err != nil {
				return nil, fmt.Errorf("rest/server: register %s: %w", f.name, err)
			}
		}
	}
	return m, nil
}

// observe counts something that took d. labels returns the labels of the key's series; it is called once for each
// key.
func (f *family) observe(d time.Duration, key [3]string, labels func(key [3]string) []string) {
	s, ok := f.series.Load(key)
	if !ok {
		values := labels(key)
		s, _ = f.series.LoadOrStore(key, &series{f.total.WithLabelValues(values...), f.duration.WithLabelValues(values...)})
	}
	if s, ok := s.(*series); ok {
		s.total.Inc()
		s.duration.Observe(d.Seconds())
	}
}

// observeRequest counts a request to a route, the path with placeholders.
func (m *Metrics) observeRequest(route, method string, status int, d time.Duration) {
	m.requests.observe(d, [3]string{route, methodLabel(method), statusLabel(status)}, func(key [3]string) []string {
		if key[0] == "" {
			key[0] = "unknown"
		}
		return key[:]
	})
}

// ObserveStore counts one operation of the store by its Go name.
func (m *Metrics) ObserveStore(method string, err error, d time.Duration) {
	m.operations.observe(d, [3]string{method, errorLabel(err)}, func(key [3]string) []string {
		name := referenceName(key[0])
		return []string{name, name, key[1]}
	})
}

// ObserveDriver counts one operation of the store's driver by its Go name.
func (m *Metrics) ObserveDriver(method string, err error, d time.Duration) {
	m.driver.observe(d, [3]string{method, errorLabel(err)}, func(key [3]string) []string {
		return []string{"unknown", snakeCase(key[0]), "unknown", "unknown", key[1]}
	})
}

// ObserveRollout counts a finished rollout, d after its start.
func (m *Metrics) ObserveRollout(status agl.RolloutStatus, mode agl.Mode, d time.Duration) {
	m.finished.observe(d, [3]string{string(status), string(mode)}, func(key [3]string) []string {
		if key[1] == "" {
			key[1] = "unknown"
		}
		return key[:2]
	})
}

// ObserveCall counts a model call.
func (m *Metrics) ObserveCall(version string, promptTokens, replyTokens int64) {
	m.calls.add(time.Now(), version, tokens{1, promptTokens, replyTokens})
}

func errorLabel(err error) string {
	switch {
	case err == nil:
		return "OK"
	case agl.IsContextError(err):
		return "cancelled"
	default:
		return string(agl.ErrorCode(err))
	}
}

// referenceName returns the reference's name of an operation.
func referenceName(method string) string {
	switch method {
	case "EnqueueRollouts":
		return "enqueue_many_rollouts"
	case "DequeueRollouts":
		return "dequeue_many_rollouts"
	case "GetRollout":
		return "get_rollout_by_id"
	case "GetResources":
		return "get_resources_by_id"
	case "GetWorker":
		return "get_worker_by_id"
	case "AddSpans":
		return "add_many_spans"
	case "ReserveSequenceIDs":
		return "get_many_span_sequence_ids"
	}
	return snakeCase(method)
}

func snakeCase(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// methodLabel keeps clients from filling the memory with made-up methods.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions:
		return method
	}
	return "other"
}

// statusLabel returns the text of a status, without allocating for the common ones.
func statusLabel(status int) string {
	switch status {
	case http.StatusOK:
		return "200"
	case http.StatusCreated:
		return "201"
	case 0:
		return "520" // nothing was written
	}
	return strconv.Itoa(status)
}
