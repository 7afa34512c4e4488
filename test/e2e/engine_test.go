//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/test/process"
	"github.com/agl-go/agl/tinker"
)

// policyServer is agl policy serve, which keeps its checkpoints in a folder.
type policyServer struct {
	cmd  *exec.Cmd
	url  string
	dir  string
	port string
}

// startPolicy starts a policyServer at a port; empty takes a free one.
func startPolicy(t *testing.T, dir, port string) *policyServer {
	t.Helper()
	if port == "" {
		port = strconv.Itoa(process.FreePort(t))
	}
	s := &policyServer{dir: dir, port: port, url: "http://127.0.0.1:" + port}
	s.cmd = exec.CommandContext(t.Context(), aglBinary, "policy", "serve", "--port", port, "--dir", dir,
		"--layers", "1", "--dim", "16", "--heads", "1", "--ff", "16")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine", func() bool {
		resp, err := http.Get(s.url + "/api/v1/healthz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return s
}

func (s *policyServer) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // says that it was killed
}

// has reports whether the engine holds the model behind the weights of a run.
func (s *policyServer) has(t *testing.T, output string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(output, "best", "best.json"))
	if err != nil {
		t.Fatal(err)
	}
	var best struct {
		Weights string `json:"weights"`
		Engine  string `json:"engine"`
	}
	if err := json.Unmarshal(data, &best); err != nil || best.Engine != s.url {
		t.Fatalf("best.json: %v\n%s", err, data)
	}
	path, err := tinker.ParsePath(best.Weights)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(s.url+"/api/v1/get_info", "application/json", strings.NewReader(fmt.Sprintf(`{"model_id":%q}`, path.Model)))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
		t.Errorf("get_info of %s: %s", path.Model, resp.Status)
	}
	return resp.StatusCode == http.StatusOK
}

// A run on an engine in another process must have the same facts as one with an embedded
// engine, even if the run is interrupted or the engine is killed and the run resumes. It must
// leave no model behind.
func TestTrainOnAnEngineElsewhere(t *testing.T) {
	t.Parallel()
	const (
		algorithm = `algorithm: {grpo: {steps: 9, prompts_per_step: 3, group_size: 4, checkpoint_every: 2}}`
		tasks     = 8
		middle    = 5 // lines of metrics
	)
	whole := filepath.Join(process.Dir(t), "whole")
	startTrain(t, runFile(t, agentAsks, tasks, "engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16}}\n"+algorithm), "--output", whole).end(t, 0)
	want := facts(t, filepath.Join(whole, "metrics.jsonl"))

	begin := func(t *testing.T) (s *policyServer, run *train, output string, leave func()) {
		t.Helper()
		s = startPolicy(t, process.Dir(t), "")
		file := runFile(t, agentAsks, tasks, fmt.Sprintf("engine: {tinker: {base_url: %q, model: agl-policy, chat: characters, retry_for: 500ms}}\n%s", s.url, algorithm))
		output = filepath.Join(process.Dir(t), "out")
		leave = stayAt(t, file, filepath.Join(output, "metrics.jsonl"), middle)
		return s, startTrain(t, file, "--output", output), output, leave
	}
	check := func(t *testing.T, s *policyServer, output string) {
		t.Helper()
		if got := facts(t, filepath.Join(output, "metrics.jsonl")); !slices.Equal(want, got) {
			t.Errorf("in process:\n%s\nelsewhere:\n%s", strings.Join(want, ""), strings.Join(got, ""))
		}
		if s.has(t, output) {
			t.Error("the engine still has the model")
		}
	}
	reach := func(t *testing.T, output string) {
		t.Helper()
		eventually(t, "metrics", func() bool { return len(readLines(t, filepath.Join(output, "metrics.jsonl"))) >= middle })
	}

	t.Run("left alone", func(t *testing.T) {
		t.Parallel()
		s, run, output, leave := begin(t)
		leave()
		run.end(t, 0)
		check(t, s, output)
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		s, run, output, leave := begin(t)
		reach(t, output)
		if err := run.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		run.end(t, 130)
		leave()
		if s.has(t, output) {
			t.Error("the engine still has the model of a run that was interrupted")
		}
		startTrain(t, "--resume", output).end(t, 0)
		check(t, s, output)
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		s, run, output, leave := begin(t)
		reach(t, output)
		s.kill(t)
		leave()
		run.end(t, 1)
		if said := run.said(t); !strings.Contains(said, " train --resume ") || !strings.Contains(said, s.url) {
			t.Errorf("it does not say what happened, or how to go on:\n%s", said)
		}
		away := startTrain(t, "--resume", output)
		away.end(t, 1)
		if said := away.said(t); !strings.Contains(said, "engine.tinker: "+s.url) {
			t.Errorf("while the engine is away: %s", said)
		}
		s = startPolicy(t, s.dir, s.port)
		startTrain(t, "--resume", output).end(t, 0)
		check(t, s, output)
	})
}
