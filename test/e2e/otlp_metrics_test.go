//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
)

// Python's OpenTelemetry SDK exports the metrics of a run to the store.
func TestOTLPMetrics(t *testing.T) {
	t.Parallel()
	venv := os.Getenv("AGL_COMPAT_VENV")
	if venv == "" {
		t.Skip("AGL_COMPAT_VENV does not name an environment with OpenTelemetry; test/compat/venv.sh makes one")
	}
	_, url := startStore(t)
	program := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), filepath.Join("testdata", "otlp_metrics.py"))
	program.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+url, "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20"+token, "OTEL_RESOURCE_ATTRIBUTES=agl.run_id=sweep-7", "OTEL_SERVICE_NAME=my trainer")
	if out, err := program.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	runs := agl.RunsOf(connect(t, url))
	run, err := runs.GetRun(t.Context(), "sweep-7")
	if err != nil || run.Name != "my trainer" || run.Status != agl.RunRunning {
		t.Errorf("%+v, %v", run, err)
	}
	page, err := runs.QueryRunMetrics(t.Context(), agl.QueryRunMetricsParams{RunID: "sweep-7"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]map[string]float64{}
	for _, m := range page.Items {
		got[m.Step] = m.Values
	}
	want := map[int]map[string]float64{
		1: {"loss": 1, "tokens{phase=sample}": 100, "tokens{phase=train}": 100, "seconds/count": 4, "seconds/mean": 2, "seconds/min": 1, "seconds/max": 3},
		2: {"loss": 7, "tokens{phase=sample}": 200, "tokens{phase=train}": 200, "seconds/count": 4, "seconds/mean": 4, "seconds/min": 2, "seconds/max": 6},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics by step (-want +got):\n%s", diff)
	}
}
