package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/otlp"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// metricsDoc is a request in JSON with one point "loss" for each run@step=value.
func metricsDoc(points ...string) string {
	var all []string
	for _, point := range points {
		place, value, _ := strings.Cut(point, "=")
		run, step, given := strings.Cut(place, "@")
		attributes := fmt.Sprintf(`{"key":"agl.run_id","value":{"stringValue":%q}}`, run)
		if given {
			attributes += fmt.Sprintf(`,{"key":"agl.step","value":{"intValue":%q}}`, step)
		}
		all = append(all, fmt.Sprintf(`{"attributes":[%s],"asDouble":%s}`, attributes, value))
	}
	return `{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my trainer"}}]},"scopeMetrics":[{"metrics":[{"name":"loss","gauge":{"dataPoints":[` +
		strings.Join(all, ",") + `]}}]}]}]}`
}

func TestMetricsOfRuns(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine, Token: "root", Keys: access.NewKeys(engine)})
	runs := agl.RunsOf(engine)
	export := func(body string, header ...string) (int, string) {
		w := ask(t, api, "POST", "/v1/metrics", body, append([]string{"Authorization", "Bearer root", "Content-Type", "application/json"}, header...)...)
		return w.Code, w.Body.String()
	}
	series := func(run string) string {
		page, err := runs.QueryRunMetrics(t.Context(), agl.QueryRunMetricsParams{RunID: run})
		if err != nil {
			return err.Error()
		}
		var out []string
		for _, m := range page.Items {
			out = append(out, fmt.Sprint(m.Step, m.Values))
		}
		return strings.Join(out, " ")
	}
	// A run begins with its first metrics; one that is there keeps its name.
	if _, err := runs.StartRun(t.Context(), agl.StartRunParams{RunID: "old", Name: "mine"}); err != nil {
		t.Fatal(err)
	}
	if status, answer := export(metricsDoc("new@2=0.5", "old@4=1", "new@1=0.25", "new@2=0.75")); status != 200 || answer != "{}" {
		t.Fatalf("%d %s", status, answer)
	}
	for id, want := range map[string]string{"new": "my trainer", "old": "mine"} {
		if run, err := runs.GetRun(t.Context(), id); err != nil || run.Name != want || run.Status != agl.RunRunning {
			t.Errorf("run %s: %+v, %v, want the name %q", id, run, err, want)
		}
	}
	if got, want := series("new"), "1 map[loss:0.25] 2 map[loss:0.75]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// What names no step is of the newest one.
	if status, answer := export(metricsDoc("new=9", "fresh=3")); status != 200 || answer != "{}" {
		t.Fatalf("%d %s", status, answer)
	}
	if got, want := series("new")+", "+series("fresh"), "1 map[loss:0.25] 2 map[loss:9], 0 map[loss:3]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// A bad run costs only its own points.
	status, answer := export(metricsDoc("no run!@1=1", "new@3=1", "no run!@2=1"))
	if status != 200 || !strings.Contains(answer, `"rejectedDataPoints":"2"`) || !strings.Contains(answer, `run_id: got \"no run!\"`) || !strings.HasSuffix(series("new"), "3 map[loss:1]") {
		t.Errorf("%d %s, and the good run has %s", status, answer, series("new"))
	}
	// More steps than one call of the store takes.
	var many []string
	for i := range agl.MaxRunSteps + 3 {
		many = append(many, fmt.Sprintf("many@%d=1", i))
	}
	if status, answer := export(metricsDoc(many...)); status != 200 || answer != "{}" || strings.Count(series("many"), "loss") != len(many) {
		t.Errorf("%d %s, %d steps", status, answer, strings.Count(series("many"), "loss"))
	}
}

func TestMetricsTransport(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine, MaxBodyBytes: 4 << 10})
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr(otlp.AttrRunID, "r")
	point := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	point.SetName("loss")
	point.SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(1)
	proto, err := new(pmetric.ProtoMarshaler).MarshalMetrics(md)
	if err != nil {
		t.Fatal(err)
	}
	zip := func(data string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		if _, err := z.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const protobuf = "application/x-protobuf"
	for _, tc := range []struct {
		name, contentType, encoding, body string
		status                            int
		want                              string
	}{
		{"protobuf", protobuf, "", string(proto), 200, ""},
		{"compressed", protobuf, "gzip", zip(string(proto)), 200, ""},
		{"compressed JSON", "application/json", "gzip", zip(metricsDoc("r@1=1")), 200, "{}"},
		{"empty", protobuf, "", "", 200, ""},
		{"text", "text/plain", "", "x", 400, "Unsupported Content-Type 'text/plain'"},
		{"garbage", protobuf, "", "\x0a\xff", 400, "Unable to parse OTLP metrics payload"},
		{"too large", protobuf, "", strings.Repeat("x", 5<<10), 413, "larger than 4096 bytes"},
		{"too large when decompressed", protobuf, "gzip", zip(strings.Repeat("x", 1<<20)), 413, "larger than 4096 bytes"},
	} {
		w := ask(t, api, "POST", "/v1/metrics", tc.body, "Content-Type", tc.contentType, "Content-Encoding", tc.encoding)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %q, want %d %q", tc.name, w.Code, w.Body, tc.status, tc.want)
		}
	}
	if run, err := agl.RunsOf(engine).GetRun(t.Context(), "r"); err != nil || run.Metrics["loss"] != 1 {
		t.Errorf("%+v, %v", run, err)
	}
	without := newServer(t, server.Config{Store: &stubStore{}})
	if w := ask(t, without, "POST", "/v1/metrics", metricsDoc("r@1=1"), "Content-Type", "application/json"); w.Code != 501 || !strings.Contains(w.Body.String(), "keeps no runs") {
		t.Errorf("a store without runs: %d %s", w.Code, w.Body)
	}
	broken := newServer(t, server.Config{Store: brokenRuns{Store: engine}})
	if w := ask(t, broken, "POST", "/v1/metrics", metricsDoc("r@1=1"), "Content-Type", "application/json"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a store that is away: %d %s", w.Code, w.Body)
	}
}

// brokenRuns is a store whose runs cannot be read.
type brokenRuns struct {
	agl.Store
	agl.Runs
}

func (brokenRuns) GetRun(context.Context, string) (agl.Run, error) {
	return agl.Run{}, agl.Errorf(agl.CodeUnavailable, "away")
}

// Text that is not UTF-8, such as a value that was cut in the middle of a letter, does not cost the other points of a run.
func TestMetricsRepaired(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine})
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("agl.run_id", "r")
	rm.Resource().Attributes().PutStr("service.name", "a\xff")
	for _, user := range []string{"b", "c\xff"} {
		metric := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		metric.SetName("loss")
		point := metric.SetEmptyGauge().DataPoints().AppendEmpty()
		point.SetDoubleValue(1)
		point.Attributes().PutStr("user", user)
	}
	data, err := new(pmetric.ProtoMarshaler).MarshalMetrics(md)
	if err != nil {
		t.Fatal(err)
	}
	w := ask(t, api, "POST", "/v1/metrics", string(data), "Content-Type", "application/x-protobuf")
	run, err := agl.RunsOf(engine).GetRun(t.Context(), "r")
	if w.Code != 200 || w.Body.Len() != 0 || err != nil || len(run.Metrics) != 2 || run.Metrics["loss{user=c\uFFFD}"] != 1 || run.Name != "a\uFFFD" {
		t.Errorf("got %d %q, the run %+v, %v, want both points", w.Code, w.Body, run, err)
	}
}
