package tracker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
)

// MLflowConfig configures [NewMLflow]. URL and Experiment are required.
type MLflowConfig struct {
	// URL is that of the tracking server, such as http://127.0.0.1:5000.
	URL string
	// Token is sent as a bearer token; empty sends none.
	Token string
	// Experiment is created if it does not exist.
	Experiment string
	// RunName is the name of the run; empty leaves it to the server.
	RunName string
	// Params are the settings of the run, by name.
	Params map[string]string
	// StateFile remembers the run, so that a later process of it logs to the same; empty remembers nothing.
	StateFile string
	// Transport sends the requests; nil is http.DefaultTransport.
	Transport http.RoundTripper
}

// MLflow logs to an MLflow tracking server by its REST API (mlflow.org/docs/latest/rest-api.html, version 2.0).
type MLflow struct {
	cfg  MLflowConfig
	http http.Client
	run  string
}

// mlflowBatch is the number of metrics that log-batch takes at once.
const mlflowBatch = 1000

// mlflowTimeout bounds a request.
const mlflowTimeout = 30 * time.Second

// NewMLflow starts a run, or goes on with that of the state file.
func NewMLflow(ctx context.Context, cfg MLflowConfig) (*MLflow, error) {
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	m := &MLflow{cfg: cfg, http: http.Client{Transport: cfg.Transport, Timeout: mlflowTimeout, CheckRedirect: httpserver.SameMethod}}
	if err := m.open(ctx); err != nil {
		return nil, fmt.Errorf("mlflow: %w", err)
	}
	return m, nil
}

func (m *MLflow) open(ctx context.Context) error {
	if m.cfg.StateFile != "" {
		state, err := os.ReadFile(m.cfg.StateFile)
		if err == nil {
			m.run = strings.TrimSpace(string(state))
			return m.update(ctx, "RUNNING", 0)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	experiment, err := m.experiment(ctx)
	if err != nil {
		return err
	}
	var created struct {
		Run struct {
			Info struct {
				RunID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	if err := m.post(ctx, "runs/create", map[string]any{"experiment_id": experiment, "run_name": m.cfg.RunName, "start_time": time.Now().UnixMilli()}, &created); err != nil {
		return err
	}
	if m.run = created.Run.Info.RunID; m.run == "" {
		return errors.New("runs/create answered without a run_id")
	}
	if err := m.params(ctx); err != nil || m.cfg.StateFile == "" {
		return err
	}
	return os.WriteFile(m.cfg.StateFile, []byte(m.run+"\n"), 0o600)
}

// experiment returns the id of the experiment, which it creates if there is none.
func (m *MLflow) experiment(ctx context.Context) (string, error) {
	var created struct {
		ExperimentID string `json:"experiment_id"`
	}
	err := m.post(ctx, "experiments/create", map[string]any{"name": m.cfg.Experiment}, &created)
	if failure := new(mlflowError); errors.As(err, &failure) && failure.Code == "RESOURCE_ALREADY_EXISTS" {
		var found struct {
			Experiment struct {
				ExperimentID string `json:"experiment_id"`
				Stage        string `json:"lifecycle_stage"`
			} `json:"experiment"`
		}
		if err := m.send(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(m.cfg.Experiment), nil, &found); err != nil {
			return "", err
		}
		if found.Experiment.Stage == "deleted" {
			return "", fmt.Errorf("the experiment %q is deleted; restore it or name another", m.cfg.Experiment)
		}
		return found.Experiment.ExperimentID, nil
	}
	return created.ExperimentID, err
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (m *MLflow) params(ctx context.Context) error {
	var list []pair
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Params)) {
		list = append(list, pair{name, m.cfg.Params[name]})
	}
	if list == nil {
		return nil
	}
	return m.post(ctx, "runs/log-batch", map[string]any{"run_id": m.run, "params": list}, nil)
}

type mlflowMetric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"`
	Step      int     `json:"step"`
}

// Log implements [Tracker].
func (m *MLflow) Log(ctx context.Context, line []agl.RunMetrics) error {
	now := time.Now().UnixMilli()
	var list []mlflowMetric
	for _, one := range line {
		for _, name := range slices.Sorted(maps.Keys(one.Values)) {
			list = append(list, mlflowMetric{mlflowName(name), one.Values[name], now, one.Step})
		}
	}
	for part := range slices.Chunk(list, mlflowBatch) {
		if err := m.post(ctx, "runs/log-batch", map[string]any{"run_id": m.run, "metrics": part}, nil); err != nil {
			return fmt.Errorf("mlflow: %w", err)
		}
	}
	return nil
}

// mlflowName makes a name that MLflow takes: it refuses a whole batch for a name with other characters, one that is no path in its shortest
// form, and one that is too long (mlflow/utils/validation.py). Names have parts that come from tasks and rewards.
func mlflowName(name string) string {
	const most = 250
	parts := strings.Split(name, "/")
	for i, part := range parts {
		part = strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.- ", r) {
				return r
			}
			return '_'
		}, part)
		switch part {
		case "":
			part = "_"
		case ".", "..":
			part = strings.ReplaceAll(part, ".", "_")
		}
		parts[i] = part
	}
	if utf8.RuneCountInString(strings.Join(parts, "/")) > most {
		for i, part := range parts {
			runes := []rune(part)
			parts[i] = string(runes[:min(len(runes), max(most/len(parts)-1, 1))])
		}
	}
	return strings.Join(parts, "/")
}

// Close implements [Tracker].
func (m *MLflow) Close(ctx context.Context, failed error) error {
	status := "FINISHED"
	switch {
	case errors.Is(failed, context.Canceled):
		status = "KILLED"
	case failed != nil:
		status = "FAILED"
	}
	if err := m.update(ctx, status, time.Now().UnixMilli()); err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}
	return nil
}

func (m *MLflow) update(ctx context.Context, status string, end int64) error {
	body := map[string]any{"run_id": m.run, "status": status}
	if end > 0 {
		body["end_time"] = end
	}
	return m.post(ctx, "runs/update", body, nil)
}

// mlflowError is an answer other than 200.
type mlflowError struct {
	Status  int    `json:"-"`
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (e *mlflowError) Error() string {
	return fmt.Sprintf("status %d: %s: %s", e.Status, e.Code, e.Message)
}

// post posts a body, and reads the answer into a value; nil reads none.
func (m *MLflow) post(ctx context.Context, call string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return m.send(ctx, http.MethodPost, call, data, into)
}

func (m *MLflow) send(ctx context.Context, method, call string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, m.cfg.URL+"/api/2.0/mlflow/"+call, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if m.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+m.cfg.Token)
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	defer resp.Body.Close()
	if redirected := httpserver.Redirected(req, resp, "MLflow"); redirected != "" {
		return agl.Errorf(agl.CodeInvalid, "%s: %s", call, redirected)
	}
	const most = 1 << 20
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if resp.StatusCode != http.StatusOK {
		if m.cfg.Token != "" { // some servers answer with the token that they refuse
			answer = bytes.ReplaceAll(answer, []byte(m.cfg.Token), []byte("[the token]"))
		}
		failure := &mlflowError{Status: resp.StatusCode}
		if json.Unmarshal(answer, failure) != nil {
			failure.Code, failure.Message = "not MLflow", fmt.Sprintf("%.200s", answer)
		}
		return fmt.Errorf("%s: %w", call, failure)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}
