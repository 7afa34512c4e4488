package proxy

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agl-go/agl/proxy/capture"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/upstream"
)

// metrics holds what GET /metrics shows, under names like the store's:
//
//	agl_proxy_total, agl_proxy_latency    calls, by model, path, status
//	agl_proxy_first_byte                  seconds from sending to the first byte, by model
//	agl_proxy_queue                       seconds before sending, by model
//	agl_proxy_tokens_total                by model, kind (prompt, completion)
//	agl_proxy_tries_total                 requests to backends, by model, backend
//	agl_proxy_cache_total                 calls that the cache answered, by model
//	agl_proxy_backend_up                  1 or 0, by model, backend
//	agl_proxy_backend_calls               running or waiting, by model, backend
//	agl_proxy_calls                       by state (running at a backend, held by a pause)
//	agl_proxy_paused                      1 or 0
//	agl_proxy_capture_bytes               held by calls that are not stored yet
//	agl_proxy_records_spooled             call records on disk, while the store is unavailable
//	agl_proxy_records_lost_total          call records that will never be stored
//	agl_proxy_cache_bytes                 held by the cache
//	agl_proxy_rewards_total               rewards of sessions, by source
//	agl_proxy_reward_failures_total       sessions in which the judge or the program failed, by source
//	go_…, process_…                       of the Go runtime and the process
//
// Latencies are histograms of seconds. The status 499 means that the agent left before its reply.
type metrics struct {
	upstream *upstream.Pool
	recorder *capture.Recorder
	handler  http.Handler

	total, tokens, cached              *prometheus.CounterVec
	rewards, rewardFailures            *prometheus.CounterVec
	latency, firstByte, queue          *prometheus.HistogramVec
	up, load, states, paused, captured *prometheus.Desc
	cacheBytes, tries, spooled, lost   *prometheus.Desc
}

// latencyBuckets returns bounds in seconds, from a cached reply to a long generation.
func latencyBuckets() []float64 {
	return []float64{
		0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200,
	}
}

func newMetrics(pool *upstream.Pool, recorder *capture.Recorder) *metrics {
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
		upstream: pool, recorder: recorder,
		total:     counter("agl_proxy_total", "Calls, counted.", "model", "path", "status"),
		latency:   histogram("agl_proxy_latency", "Calls, in seconds.", "model", "path", "status"),
		firstByte: histogram("agl_proxy_first_byte", "Seconds from sending a request to the first byte of its reply.", "model"),
		queue:     histogram("agl_proxy_queue", "Seconds that a call waited before it was sent.", "model"),
		tokens:    counter("agl_proxy_tokens_total", "Tokens of prompts and completions.", "model", "kind"),
		tries:     described("agl_proxy_tries_total", "Requests sent to backends.", "model", "backend"),
		cached:    counter("agl_proxy_cache_total", "Calls that the cache answered.", "model"),
		rewards:   counter("agl_proxy_rewards_total", "Rewards of sessions.", "source"),
		up:        described("agl_proxy_backend_up", "Whether a backend gets calls.", "model", "backend"),
		load:      described("agl_proxy_backend_calls", "Calls that run on a backend or wait for it.", "model", "backend"),
		states:    described("agl_proxy_calls", "Calls by state.", "state"),
		paused:    described("agl_proxy_paused", "Whether the proxy is paused."),
		captured:  described("agl_proxy_capture_bytes", "Bytes held by calls that are not stored yet."),
		spooled:   described("agl_proxy_records_spooled", "Call records that are on disk until the store takes them."),
		lost:      described("agl_proxy_records_lost_total", "Call records that will never be stored."),

		cacheBytes:     described("agl_proxy_cache_bytes", "Bytes held by the cache."),
		rewardFailures: counter("agl_proxy_reward_failures_total", "Sessions in which a source of rewards failed.", "source"),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(m.total, m.latency, m.firstByte, m.queue, m.tokens, m.cached, m.rewards, m.rewardFailures, collector{m})
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// collector reads the metrics that are computed at each scrape.
type collector struct{ m *metrics }

// Describe implements prometheus.Collector.
func (s collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.m.up, s.m.load, s.m.states, s.m.paused, s.m.captured, s.m.cacheBytes, s.m.tries, s.m.spooled, s.m.lost} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	addresses := make(map[[2]string]upstream.Backend)
	for _, b := range s.m.upstream.Backends() { // replicas behind one address, such as with a key each, are one series
		address := [2]string{b.Model, b.URL}
		others := addresses[address]
		b.Up, b.Calls, b.Tries = b.Up || others.Up, b.Calls+others.Calls, b.Tries+others.Tries
		addresses[address] = b
	}
	for _, b := range addresses {
		gauge(s.m.up, indicator(b.Up), b.Model, b.URL)
		gauge(s.m.load, float64(b.Calls), b.Model, b.URL)
		to <- prometheus.MustNewConstMetric(s.m.tries, prometheus.CounterValue, float64(b.Tries), b.Model, b.URL)
	}
	state := s.m.upstream.PauseState()
	gauge(s.m.states, float64(state.Running), "running")
	gauge(s.m.states, float64(state.Held), "held")
	gauge(s.m.paused, indicator(state.Mode != ""))
	stats := s.m.recorder.Stats()
	gauge(s.m.captured, float64(stats.Bytes))
	gauge(s.m.cacheBytes, float64(s.m.upstream.CacheBytes()))
	gauge(s.m.spooled, float64(stats.Spooled))
	to <- prometheus.MustNewConstMetric(s.m.lost, prometheus.CounterValue, float64(stats.Lost))
}

func indicator(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// call counts a call that has ended.
func (m *metrics) call(in *record.Input, used exchange.Usage) {
	// Made-up names must not create an unlimited number of series.
	model, path := "unknown", "other"
	if in.Backend != "" || m.upstream.Find(in.Model) == nil {
		model = in.Model
	}
	if exchange.Generates(in.Path) || in.Path == "/embeddings" || in.Path == exchange.CountTokens {
		path = in.Path
	}
	status := statusOf(in)
	m.total.WithLabelValues(model, path, status).Inc()
	m.latency.WithLabelValues(model, path, status).Observe(in.End.Sub(in.Start).Seconds())
	if in.Cached {
		m.cached.WithLabelValues(model).Inc()
	}
	if in.Sent.IsZero() {
		return
	}
	m.queue.WithLabelValues(model).Observe(in.Sent.Sub(in.Start).Seconds())
	if !in.FirstByte.IsZero() {
		m.firstByte.WithLabelValues(model).Observe(in.FirstByte.Sub(in.Sent).Seconds())
	}
	m.tokens.WithLabelValues(model, "prompt").Add(float64(used.Prompt))
	m.tokens.WithLabelValues(model, "completion").Add(float64(used.Completion))
}

// statusOf returns the status that the agent got, as a label.
func statusOf(in *record.Input) string {
	switch in.Status {
	case 0:
		return "499"
	case http.StatusOK:
		return "200"
	default:
		return strconv.Itoa(in.Status)
	}
}
