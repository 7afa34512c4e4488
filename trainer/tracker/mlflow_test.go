package tracker_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/tracker"
)

// MLflow refuses all metrics of a step for one name that it does not take.
func TestMLflowNames(t *testing.T) {
	t.Parallel()
	var names []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var batch struct {
			Metrics []struct {
				Key string `json:"key"`
			} `json:"metrics"`
		}
		if err := json.Unmarshal(body, &batch); err != nil {
			t.Error(err)
		}
		for _, metric := range batch.Metrics {
			names = append(names, metric.Key)
		}
		_, _ = io.WriteString(w, `{"experiment_id":"1","run":{"info":{"run_id":"r"}}}`)
	}))
	defer server.Close()
	m, err := tracker.NewMLflow(t.Context(), tracker.MLflowConfig{URL: server.URL, Experiment: "e"})
	if err != nil {
		t.Fatal(err)
	}
	given := []string{"drift/kl", "forms//n", "forms/../n", "forms/2+2=4?/n", "forms/Ünïon 1.5-b_c/n", "forms/a/./n", "forms/" + strings.Repeat("x", 243) + "/n"}
	values := map[string]float64{}
	for _, name := range given {
		values[name] = 1
	}
	if err := m.Log(t.Context(), []agl.RunMetrics{{Step: 1, Values: values}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"drift/kl", "forms/__/n", "forms/_/n", "forms/2_2_4_/n", "forms/a/_/n", "forms/" + strings.Repeat("x", 82) + "/n", "forms/Ünïon 1.5-b_c/n"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +sent):\n%s", diff)
	}
}

// A server that redirects to https makes GETs of all that it is sent.
func TestMLflowRedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/moved"+r.URL.Path, http.StatusMovedPermanently)
		}
	}))
	defer server.Close()
	state := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(state, []byte("r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := tracker.NewMLflow(t.Context(), tracker.MLflowConfig{URL: server.URL, Experiment: "e", StateFile: state})
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), `redirects POST requests (301) to "/moved/`) {
		t.Errorf("error is %v", err)
	}
}
