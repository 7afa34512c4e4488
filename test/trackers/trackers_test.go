//go:build trackers

package trackers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/tracker"
)

func program(t *testing.T, name string) string {
	t.Helper()
	venv := os.Getenv("AGL_TRACKERS_VENV")
	if venv == "" {
		t.Fatal("AGL_TRACKERS_VENV is not set; run make trackers")
	}
	return filepath.Join(venv, "bin", name)
}

// A run that resumes after step 2 must replace what its killed process has logged of step 3.
func TestTensorBoardReads(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, process := range [][]int{{0, 1, 2, 3}, {3, 4}} {
		board, err := tracker.NewTensorBoard(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range process {
			if err := board.Log(t.Context(), []agl.RunMetrics{{Step: step, Values: map[string]float64{"loss": float64(step) + 0.5*float64(len(process)), "drift/kl": -0.25}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := board.Close(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), program(t, "python"), "events.py", folder).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string][][2]float64
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string][][2]float64{
		"loss":     {{0, 2}, {1, 3}, {2, 4}, {3, 4}, {4, 5}},
		"drift/kl": {{0, -0.25}, {1, -0.25}, {2, -0.25}, {3, -0.25}, {4, -0.25}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scalars (-logged +read):\n%s", diff)
	}
}

// server starts an MLflow server and returns its URL. The server cannot pick a port itself, so another
// program may have taken the free one; then the server ends, and is started again.
func server(t *testing.T) string {
	t.Helper()
	const tries = 5
	for range tries {
		if url := tryServer(t); url != "" {
			return url
		}
	}
	t.Fatalf("the server has ended %d times before it served", tries)
	return ""
}

// tryServer returns "" if the server ends before it serves.
func tryServer(t *testing.T) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(program(t, "mlflow"), "server", "--host", "127.0.0.1", "--port", port, "--workers", "1",
		"--backend-store-uri", "sqlite:///"+dir+"/mlflow.db", "--artifacts-destination", dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	own(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed, or has said why
	}()
	t.Cleanup(func() {
		end(cmd)
		<-ended
	})
	// It is slow to start; only a server that hangs takes so long.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		if healthy(ctx, "http://"+address) {
			return "http://" + address
		}
		select {
		case <-ended:
			return ""
		case <-ctx.Done():
			t.Fatal("the server runs and does not serve")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// ask calls the server's API like any client.
func ask(t *testing.T, url string, into any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, resp.Status, body, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatal(err)
	}
}

func TestMLflowServer(t *testing.T) {
	t.Parallel()
	url := server(t)
	cfg := tracker.MLflowConfig{URL: url + "/", Experiment: "it's a test", RunName: "first", Params: map[string]string{"algorithm": "grpo", "seed": "7"}, StateFile: filepath.Join(t.TempDir(), "run")}
	open := func() *tracker.MLflow {
		m, err := tracker.NewMLflow(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	many := map[string]float64{"loss": 0.5, "drift/kl": 1e-9}
	for i := range 1500 { // more than a request takes
		many[fmt.Sprintf("forms/%04d/pass_rate", i)] = 0.25
	}
	for _, odd := range []string{"forms//n", "forms/../n", "forms/2+2=4?/n", "forms/Ünïon: ½ of 三/n", "forms/" + strings.Repeat("x", 300) + "/n"} { // a server refuses them as they are
		many[odd] = 0.25
	}
	first := open()
	if err := first.Log(t.Context(), []agl.RunMetrics{{Step: 1, Values: many}}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context(), context.Canceled); err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(cfg.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	run := strings.TrimSpace(string(state))
	check := func(status string, losses int) {
		t.Helper()
		var got struct {
			Run struct {
				Info struct {
					Status  string `json:"status"`
					RunName string `json:"run_name"`
				} `json:"info"`
				Data struct {
					Metrics []struct{ Key string }        `json:"metrics"`
					Params  []struct{ Key, Value string } `json:"params"`
				} `json:"data"`
			} `json:"run"`
		}
		ask(t, url+"/api/2.0/mlflow/runs/get?run_id="+run, &got)
		if got.Run.Info.Status != status || got.Run.Info.RunName != "first" || len(got.Run.Data.Metrics) != 1507 || len(got.Run.Data.Params) != 2 {
			t.Errorf("run %+v with %d metrics and params %v, want %s", got.Run.Info, len(got.Run.Data.Metrics), got.Run.Data.Params, status)
		}
		var history struct {
			Metrics []struct{ Step json.Number } `json:"metrics"`
		}
		ask(t, url+"/api/2.0/mlflow/metrics/get-history?metric_key=loss&run_id="+run, &history)
		if len(history.Metrics) != losses {
			t.Errorf("history %+v, want %d", history.Metrics, losses)
		}
	}
	check("KILLED", 1)
	second := open() // goes on
	if err := second.Log(t.Context(), []agl.RunMetrics{{Step: 2, Values: map[string]float64{"loss": 0.25}}}); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	check("FINISHED", 2)
	cfg.StateFile = ""
	open() // the experiment is there already
}
