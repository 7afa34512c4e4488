//go:build tinkersdk

package tinkersdk

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/tinker"
)

// sdks are the versions, by the variables that say where they are.
var sdks = map[string]string{"json": "AGL_TINKER_JSON", "protobuf": "AGL_TINKER_PROTOBUF"}

// sdk is the real SDK in a Python process, as an engine.
type sdk struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// members are the members of a call or an answer.
type members map[string]any

func startSDK(t *testing.T, name, url string) *sdk {
	t.Helper()
	venv := os.Getenv(sdks[name])
	if venv == "" {
		t.Fatalf("%s is not set; see setup.sh", sdks[name])
	}
	cmd := exec.Command(venv+"/bin/python", "python/sdk.py", url)
	cmd.Env = append(os.Environ(), "TINKER_API_KEY="+key, "TINKER_TELEMETRY=0")
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("sdk.py: %v", err)
		}
	})
	return &sdk{in: in, out: bufio.NewReader(out)}
}

// sdkError is an exception of the SDK.
type sdkError struct {
	Message string `json:"error"`
	Type    string `json:"type"`
	Status  int    `json:"status"`
}

func (e *sdkError) Error() string { return fmt.Sprintf("%s (%d): %s", e.Type, e.Status, e.Message) }

// call makes a call and reads its answer into out.
func (s *sdk) call(name string, args members, out any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	message := maps.Clone(args)
	if message == nil {
		message = members{}
	}
	message["call"] = name
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return err
	}
	answer, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("sdk.py ended in %s: %w", name, err)
	}
	var failed sdkError
	if err := json.Unmarshal(answer, &failed); err != nil {
		return fmt.Errorf("%s: %s: %w", name, answer, err)
	}
	if failed.Message != "" {
		return &failed
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// handle is an object in the Python process.
type handle struct {
	sdk *sdk
	id  int
}

// object makes a call whose answer is an object.
func (s *sdk) object(name string, args members) (handle, error) {
	var out struct {
		Handle int `json:"handle"`
	}
	err := s.call(name, args, &out)
	return handle{s, out.Handle}, err
}

// call makes a call of an object.
func (h handle) call(name string, args members, out any) error {
	with := maps.Clone(args)
	if with == nil {
		with = members{}
	}
	with["handle"] = h.id
	return h.sdk.call(name, with, out)
}

// sdkModel is a TrainingClient of the SDK.
type sdkModel struct{ handle }

func (s *sdk) CreateModel(_ context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	h, err := s.object("create", members{"base_model": p.BaseModel, "seed": p.Seed})
	return sdkModel{h}, err
}

func (s *sdk) createFromState(_ context.Context, path string, withOptimizer bool) (tinker.TrainingClient, error) {
	h, err := s.object("create_from_state", members{"path": path, "optimizer": withOptimizer})
	return sdkModel{h}, err
}

func (m sdkModel) Info(context.Context) (tinker.Info, error) {
	var out struct {
		ModelID   string `json:"model_id"`
		ModelName string `json:"model_name"`
	}
	err := m.call("info", nil, &out)
	return tinker.Info{ModelID: out.ModelID, Spec: tinker.ModelSpec{Name: out.ModelName}}, err
}

func (m sdkModel) Forward(_ context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(p, false)
}

func (m sdkModel) ForwardBackward(_ context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(p, true)
}

func (m sdkModel) forward(p tinker.ForwardParams, backward bool) (tinker.ForwardResult, error) {
	data := make([]members, len(p.Data))
	for i, d := range p.Data {
		data[i] = members{"input": d.Input, "targets": d.Targets}
		for name, v := range map[string][]float32{"weights": d.Weights, "logprobs": d.Logprobs, "advantages": d.Advantages} {
			if v != nil {
				data[i][name] = v
			}
		}
	}
	args := members{"data": data, "loss": p.Loss.Name, "backward": backward}
	if p.Loss.ClipLow != 0 {
		args["config"] = members{"clip_low_threshold": p.Loss.ClipLow, "clip_high_threshold": p.Loss.ClipHigh}
	}
	var out struct {
		Losses   [][]float32 `json:"losses"`
		Logprobs [][]float32 `json:"logprobs"`
	}
	if err := m.call("forward", args, &out); err != nil {
		return tinker.ForwardResult{}, err
	}
	res := tinker.ForwardResult{Losses: out.Losses, Logprobs: out.Logprobs}
	for _, losses := range out.Losses {
		for _, v := range losses {
			res.Loss += float64(v)
		}
	}
	return res, nil
}

func (m sdkModel) OptimStep(_ context.Context, p tinker.AdamParams) (tinker.OptimStepResult, error) {
	adam := members{"learning_rate": p.LearningRate, "weight_decay": p.WeightDecay, "grad_clip_norm": p.GradClipNorm}
	var out struct {
		Metrics map[string]float64 `json:"metrics"`
	}
	err := m.call("step", members{"adam": adam}, &out)
	return tinker.OptimStepResult{Step: int64(out.Metrics["agl/step"]), GradNorm: out.Metrics["agl/grad_norm"]}, err
}

func (m sdkModel) path(name string, p tinker.SaveWeightsParams) (string, error) {
	var out struct {
		Path string `json:"path"`
	}
	err := m.call(name, members{"name": p.Name}, &out)
	return out.Path, err
}

func (m sdkModel) SaveWeights(_ context.Context, p tinker.SaveWeightsParams) (string, error) {
	return m.path("save_state", p)
}

func (m sdkModel) SaveWeightsForSampler(_ context.Context, p tinker.SaveWeightsParams) (string, error) {
	return m.path("save_sampler", p)
}

func (m sdkModel) LoadWeights(_ context.Context, p tinker.LoadWeightsParams) error {
	return m.call("load_state", members{"path": p.Path, "optimizer": p.WithOptimizer}, nil)
}

// Unload does nothing, because in the SDK a model lives as long as its session.
func (m sdkModel) Unload(context.Context) error { return nil }

// publish saves weights without a name and opens them.
func (s *sdk) publish(_ context.Context, m tinker.TrainingClient) (tinker.SamplingClient, error) {
	h, err := s.object("publish", members{"handle": m.(sdkModel).id})
	return sdkSampler{h}, err
}

// sdkSampler is a SamplingClient of the SDK.
type sdkSampler struct{ handle }

func (s *sdk) NewSamplingClient(_ context.Context, p tinker.NewSamplingClientParams) (tinker.SamplingClient, error) {
	args := members{"path": p.Path}
	if p.BaseModel != "" {
		args = members{"base_model": p.BaseModel}
	}
	h, err := s.object("sampler", args)
	return sdkSampler{h}, err
}

func (s sdkSampler) Sample(_ context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	params := members{"max_tokens": p.MaxTokens, "temperature": p.Temperature, "seed": p.Seed}
	if p.Stop != nil {
		params["stop"] = p.Stop
	}
	var out struct {
		Sequences []struct {
			Tokens     []int32           `json:"tokens"`
			Logprobs   []float32         `json:"logprobs"`
			StopReason tinker.StopReason `json:"stop_reason"`
		} `json:"sequences"`
		PromptLogprobs []*float32 `json:"prompt_logprobs"`
	}
	args := members{"prompt": p.Prompt, "num_samples": max(p.NumSamples, 1), "params": params}
	if p.PromptLogprobs {
		args["include_prompt_logprobs"] = true
	}
	err := s.call("sample", args, &out)
	var res tinker.SampleResult
	for i, v := range out.PromptLogprobs {
		if (v == nil) != (i == 0) {
			return res, fmt.Errorf("prompt_logprobs: %v at %d", v, i)
		}
		if v != nil {
			res.PromptLogprobs = append(res.PromptLogprobs, *v)
		}
	}
	for _, q := range out.Sequences {
		res.Sequences = append(res.Sequences, tinker.Sequence{Tokens: q.Tokens, Logprobs: q.Logprobs, StopReason: q.StopReason})
	}
	return res, err
}

func (sdkSampler) Spec() tinker.ModelSpec { return tinker.ModelSpec{} }

func (s *sdk) DeleteWeights(_ context.Context, p tinker.DeleteWeightsParams) error {
	return s.call("delete", members{"path": p.Path}, nil)
}

func (s *sdk) Capabilities(context.Context) (tinker.Capabilities, error) {
	var out struct {
		Models []string `json:"models"`
	}
	err := s.call("capabilities", nil, &out)
	var c tinker.Capabilities
	for _, name := range out.Models {
		c.Models = append(c.Models, tinker.ModelSpec{Name: name})
	}
	return c, err
}
