package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count what GET /metrics shows, under names like the store's:
//
//	agl_proxy_total, agl_proxy_latency    calls, by model, path, status
//	agl_proxy_first_byte                  seconds from sending to the first byte, by model
//	agl_proxy_queue                       seconds before sending, by model
//	agl_proxy_tokens_total                by model, kind (prompt, completion)
//	agl_proxy_tries_total                 requests to backends, by model, backend
//	agl_proxy_cache_total                 calls that the cache answered, by model
//	agl_proxy_backend_up                  1 or 0, by model, backend
//	agl_proxy_backend_calls               that run on it or wait for it, by model, backend
//	agl_proxy_calls                       by state (running at a backend, held by a pause)
//	agl_proxy_paused                      1 or 0
//	agl_proxy_capture_bytes               held by calls that are not stored yet
//	agl_proxy_records_spooled             call records on disk, the store being away
//	agl_proxy_records_lost_total          call records that will never be stored
//	agl_proxy_cache_bytes                 held by the cache
//
// Latencies are histograms of seconds. A status of 499 is an agent that left.
type metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	total, tokens, cached              *prometheus.CounterVec
	latency, firstByte, queue          *prometheus.HistogramVec
	calls                              sync.Map // [3]string → *callSeries
	models                             sync.Map // string → *modelSeries
	up, load, states, paused, captured *prometheus.Desc
	kept, tries, spooled, lost         *prometheus.Desc
}

// callSeries and modelSeries are children that have been looked up.
type callSeries struct {
	total   prometheus.Counter
	latency prometheus.Observer
}

type modelSeries struct {
	firstByte, queue   prometheus.Observer
	prompt, completion prometheus.Counter
}

// latencyBuckets are bounds in seconds, from a cached reply to a long generation.
func latencyBuckets() []float64 {
	return []float64{
		0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200,
	}
}

func newMetrics(p *Proxy) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets()}, labels)
	}
	described := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		total:     counter("agl_proxy_total", "Calls, counted.", "model", "path", "status"),
		latency:   histogram("agl_proxy_latency", "Calls, in seconds.", "model", "path", "status"),
		firstByte: histogram("agl_proxy_first_byte", "Seconds from sending a request to the first byte of its reply.", "model"),
		queue:     histogram("agl_proxy_queue", "Seconds that a call waited before it was sent.", "model"),
		tokens:    counter("agl_proxy_tokens_total", "Tokens of prompts and completions.", "model", "kind"),
		tries:     described("agl_proxy_tries_total", "Requests sent to backends.", "model", "backend"),
		cached:    counter("agl_proxy_cache_total", "Calls that the cache answered.", "model"),
		up:        described("agl_proxy_backend_up", "Whether a backend gets calls.", "model", "backend"),
		load:      described("agl_proxy_backend_calls", "Calls that run on a backend or wait for it.", "model", "backend"),
		states:    described("agl_proxy_calls", "Calls by state.", "state"),
		paused:    described("agl_proxy_paused", "Whether the proxy is paused."),
		captured:  described("agl_proxy_capture_bytes", "Bytes held by calls that are not stored yet."),
		kept:      described("agl_proxy_cache_bytes", "Bytes held by the cache."),
		spooled:   described("agl_proxy_records_spooled", "Call records that are on disk until the store takes them."),
		lost:      described("agl_proxy_records_lost_total", "Call records that will never be stored."),
	}
	// A registry of our own has nothing that these could clash with.
	m.registry.MustRegister(m.total, m.latency, m.firstByte, m.queue, m.tokens, m.cached, collector{m, p})
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// collector collects what is read when it is asked for.
type collector struct {
	m *metrics
	p *Proxy
}

// Describe is a collector's.
func (s collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.m.up, s.m.load, s.m.states, s.m.paused, s.m.captured, s.m.kept, s.m.tries, s.m.spooled, s.m.lost} {
		to <- d
	}
}

// Collect is a collector's.
func (s collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	t, now := s.p.models.Load(), time.Now()
	seen := make(map[[2]string]bool)
	for _, name := range t.names() {
		for _, b := range t.groups[name].replicas {
			at := b.base.Redacted()
			if seen[[2]string{name, at}] {
				continue // replicas behind one address are one series
			}
			seen[[2]string{name, at}] = true
			gauge(s.m.up, indicator(b.state.wait(now) == 0), name, at)
			gauge(s.m.load, float64(b.state.load.Load()), name, at)
			to <- prometheus.MustNewConstMetric(s.m.tries, prometheus.CounterValue, float64(b.state.tries.Load()), name, at)
		}
	}
	state := s.p.PauseState()
	gauge(s.m.states, float64(state.Running), "running")
	gauge(s.m.states, float64(state.Held), "held")
	gauge(s.m.paused, indicator(state.Mode != ""))
	gauge(s.m.captured, float64(s.p.budget.held()))
	gauge(s.m.kept, float64(s.p.cache.bytes()))
	gauge(s.m.spooled, float64(s.p.recorder.spooledCalls()))
	to <- prometheus.MustNewConstMetric(s.m.lost, prometheus.CounterValue, float64(s.p.recorder.losses.Load()))
}

func indicator(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// call counts a call that has ended.
func (m *metrics) call(c *call) {
	// What agents make up is not to fill the memory.
	model, path := "unknown", "other"
	if c.group != nil {
		model = c.model
	}
	if generates(c.path) || c.path == "/embeddings" || c.path == "/messages/count_tokens" {
		path = c.path
	}
	s := m.callSeries([3]string{model, path, statusOf(c)})
	s.total.Inc()
	s.latency.Observe(c.end.Sub(c.start).Seconds())
	if c.cached {
		m.cached.WithLabelValues(model).Inc()
	}
	if c.sent.IsZero() {
		return
	}
	of := m.modelSeries(model)
	of.queue.Observe(c.sent.Sub(c.start).Seconds())
	if !c.firstByte.IsZero() {
		of.firstByte.Observe(c.firstByte.Sub(c.sent).Seconds())
	}
	in, out := c.usage.count(len(c.request))
	of.prompt.Add(float64(in))
	of.completion.Add(float64(out))
}

func (m *metrics) callSeries(key [3]string) *callSeries {
	if found, ok := m.calls.Load(key); ok {
		if s, ok := found.(*callSeries); ok {
			return s
		}
	}
	s := &callSeries{m.total.WithLabelValues(key[:]...), m.latency.WithLabelValues(key[:]...)}
	m.calls.Store(key, s)
	return s
}

func (m *metrics) modelSeries(model string) *modelSeries {
	if found, ok := m.models.Load(model); ok {
		if s, ok := found.(*modelSeries); ok {
			return s
		}
	}
	s := &modelSeries{
		firstByte: m.firstByte.WithLabelValues(model), queue: m.queue.WithLabelValues(model),
		prompt: m.tokens.WithLabelValues(model, "prompt"), completion: m.tokens.WithLabelValues(model, "completion"),
	}
	m.models.Store(model, s)
	return s
}

// statusOf spells the status that the agent got.
func statusOf(c *call) string {
	switch c.status {
	case 0:
		return "499"
	case http.StatusOK:
		return "200"
	default:
		return strconv.Itoa(c.status)
	}
}

// observe counts a call that has ended, and logs it.
func (p *Proxy) observe(ctx context.Context, c *call) {
	p.metrics.call(c)
	level := slog.LevelDebug
	if p.cfg.LogCalls {
		level = slog.LevelInfo
	}
	if !p.cfg.Logger.Enabled(ctx, level) {
		return
	}
	in, out := c.usage.count(len(c.request))
	list := make([]slog.Attr, 0, 24)
	list = append(list,
		slog.String("path", c.path), slog.String("model", c.model), slog.String("rollout", c.rolloutID), slog.String("attempt", c.attemptID),
		slog.Int("status", c.status), slog.Bool("stream", c.stream), slog.Bool("delivered", c.delivered),
		slog.Float64("seconds", c.end.Sub(c.start).Seconds()), slog.Int("tries", c.tries), slog.Int64("prompt_tokens", in), slog.Int64("completion_tokens", out),
	)
	if c.backend != nil {
		list = append(list, slog.String("backend", c.backend.base.Redacted()), slog.String("version", c.backend.Version))
	}
	if !c.sent.IsZero() {
		list = append(list, slog.Float64("queue_seconds", c.sent.Sub(c.start).Seconds()))
		if !c.firstByte.IsZero() {
			list = append(list, slog.Float64("first_byte_seconds", c.firstByte.Sub(c.sent).Seconds()))
		}
	}
	if c.cached {
		list = append(list, slog.Bool("cached", true))
	}
	if c.outcome != "" {
		list = append(list, slog.String("outcome", string(c.outcome)))
	}
	if c.fault != "" {
		list = append(list, slog.String("fault", c.fault), slog.String("source", c.source))
	}
	if p.cfg.LogContents {
		list = append(list, slog.String("request", string(c.request)))
		switch {
		case c.assembled != nil:
			list = append(list, slog.String("reply", string(c.assembled.AppendJSON(nil))))
		case c.reply != nil:
			list = append(list, slog.String("reply", string(c.reply)))
		}
	}
	p.cfg.Logger.LogAttrs(ctx, level, "model call", list...)
}
