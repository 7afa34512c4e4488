package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/inference/inferencetest"
	"github.com/agl-go/agl/trainer/runfile"
)

// serverJob is a run of the agent that asks, with an inference server of its own.
func serverJob(t *testing.T, s inferencetest.Script) (Config, inferencetest.Script) {
	t.Helper()
	s.Port, s.Starts = inferencetest.Port(t), filepath.Join(t.TempDir(), "starts")
	cfg := grpoJob(t, runfile.Engine{})
	cfg.File.Algorithm = &algorithms.Baseline{}
	env := strings.SplitN(s.String(), "=", 2)
	cfg.File.Engine.Server = &runfile.Server{Config: inference.Config{
		Command: []string{"/bin/sh", "-c", fmt.Sprintf(`%s="$1" exec "$0"`, env[0]), cfg.File.Agent.Process.Command[0], env[1]},
		BaseURL: fmt.Sprintf("http://127.0.0.1:%d/v1", s.Port), GracePeriod: time.Minute,
	}}
	cfg.File.Engine.Server.Model.PauseURL, cfg.File.Engine.Server.Model.ResumeURL = "/sleep", "/wake_up"
	return cfg, s
}

// A run has an inference server of its own, which dies in the middle of a call and is
// started again; no rollout notices.
func TestInferenceServer(t *testing.T) {
	t.Parallel()
	cfg, script := serverJob(t, inferencetest.Script{Unready: 1, CrashAt: 4})
	cfg.File.Agent.Concurrency = 1
	result := runJob(t, cfg)
	if s := baselineOf(t, result); s.Train.Rewarded != 4 || s.Val.Rewarded != 2 {
		t.Errorf("result %+v", result.Summary)
	}
	lines := strings.Split(strings.TrimSpace(read(t, script.Starts)), "\n")
	if len(lines) != 2 {
		t.Errorf("the server was started %d times, want 2: %q", len(lines), lines)
	}
	if log := read(t, filepath.Join(result.Output, serverLog)); !strings.Contains(log, "CUDA out of memory: call 4") {
		t.Errorf("its output is not kept: %q", log)
	}
	if report := read(t, result.Report); !strings.Contains(report, cfg.File.Engine.Server.Config.BaseURL) {
		t.Errorf("the report does not name the server:\n%s", report)
	}
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", script.Port)); err == nil {
		t.Error("the server is left", conn.Close())
	}
	trial, err := DryRun(t.Context(), cfg)
	if err != nil || trial.Usage.Calls != 1 {
		t.Errorf("trial %+v, %v", trial, err)
	}
}

// A server that does not start, or that dies too often, ends the run with its last lines.
func TestInferenceServerFails(t *testing.T) {
	t.Parallel()
	cfg, _ := serverJob(t, inferencetest.Script{Lives: 1, CrashAt: 1})
	cfg.File.Engine.Server.Config.Restarts = 1
	if _, err := Run(t.Context(), cfg); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "engine.command: ") || !strings.Contains(err.Error(), "CUDA out of memory: start 2") {
		t.Errorf("got %v", err)
	}
	cfg, script := serverJob(t, inferencetest.Script{Lives: 1})
	if err := os.WriteFile(script.Starts, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "engine.command: the inference server is not ready") || !strings.Contains(err.Error(), "CUDA out of memory: start 2") {
		t.Errorf("got %v", err)
	}
}

// pausing is an algorithm that pauses the proxy before it does anything.
type pausing struct{ algorithms.Baseline }

func (p *pausing) New(parts algorithms.Parts) (algorithms.Run, error) {
	run, err := p.Baseline.New(parts)
	return pausingRun{run}, err
}

type pausingRun struct{ algorithm algorithms.Run }

// Result implements [algorithms.Run].
func (r pausingRun) Result() algorithms.Result { return r.algorithm.Result() }

// Run implements [algorithms.Run].
func (r pausingRun) Run(ctx context.Context, in agl.AlgorithmInput) error {
	if err := in.Proxy.Drain(ctx); err != nil {
		return err
	}
	if err := in.Proxy.Resume(ctx); err != nil {
		return err
	}
	return r.algorithm.Run(ctx, in)
}

// The server sleeps while the algorithm has paused the proxy.
func TestInferenceServerSleeps(t *testing.T) {
	t.Parallel()
	cfg, script := serverJob(t, inferencetest.Script{})
	cfg.File.Algorithm = &pausing{}
	runJob(t, cfg)
	if starts := read(t, script.Starts); !strings.HasSuffix(starts, "/sleep\n/wake_up\n") {
		t.Errorf("the server was told %q", starts)
	}
}
