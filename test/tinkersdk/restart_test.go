//go:build tinkersdk

package tinkersdk

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/test/process"
	"github.com/agl-go/agl/tinker"
)

// A server that is killed in the middle of training must have everything that was saved when
// it is started again: a model of a checkpoint continues like the one that died, and a snapshot
// gives the same samples. A client that still uses the dead model must get an error that says
// so.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name := range sdks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			dir := process.Dir(t)
			port := strconv.Itoa(process.FreePort(t))
			first := serveAt(t, port, "--dir="+dir)
			before := startSDK(t, name, first.url)
			r := &recorder{t: t}
			m, err := before.CreateModel(ctx, tinker.CreateModelParams{BaseModel: "agl-policy", Seed: 3})
			r.note("create", nil, err)
			for i := range 5 {
				r.step("begin", m, demonstrations(t, i), 3e-3)
			}
			state, err := m.SaveWeights(ctx, tinker.SaveWeightsParams{Name: "state"})
			r.note("save", nil, err)
			snapshot, err := m.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "snapshot"})
			r.note("save for sampler", nil, err)
			prompt, stop := question(t)
			draw := tinker.SampleParams{Prompt: prompt, NumSamples: 4, MaxTokens: 8, Temperature: 1, Stop: stop, Seed: new(uint64(5))}
			sampled := func(s *sdk) tinker.SampleResult {
				t.Helper()
				sampler, err := s.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: snapshot})
				if err != nil {
					t.Fatal(err)
				}
				res, err := sampler.Sample(ctx, draw)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			wantSampled := sampled(before)
			goesOn := func(m tinker.TrainingClient) transcript {
				t.Helper()
				r := &recorder{t: t}
				for i := range 3 {
					r.step("go on", m, demonstrations(t, 5+i), 3e-3)
				}
				return r.log
			}
			want := goesOn(m)

			// A step is always under way when the server is killed.
			ended, began := make(chan error, 1), make(chan struct{}, 1000)
			go func() {
				for {
					began <- struct{}{}
					if _, err := m.ForwardBackward(ctx, demonstrations(t, 9)); err != nil {
						ended <- err
						return
					}
				}
			}()
			for range 3 {
				<-began
			}
			first.end(t, syscall.SIGKILL)
			second := serveAt(t, port, "--dir="+dir)

			after := startSDK(t, name, second.url)
			if diff := cmp.Diff(wantSampled, sampled(after)); diff != "" {
				t.Errorf("the snapshot (-want +got):\n%s", diff)
			}
			again, err := after.createFromState(ctx, state, true)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, goesOn(again)); diff != "" {
				t.Errorf("training (-want +got):\n%s", diff)
			}
			told := <-ended
			var failed *sdkError
			if !errors.As(told, &failed) || failed.Status != http.StatusNotFound || !strings.Contains(failed.Message, "an earlier run of the server") {
				t.Errorf("the model that died: %v", told)
			}
		})
	}
}

// The server must refuse what it does not support, and stop at stop texts.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name := range sdks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSDK(t, name, serve(t, "--max-models=1").url)
			roomy := startSDK(t, name, serve(t).url)
			base, err := s.object("sampler", members{"base_model": "agl-policy"})
			if err != nil {
				t.Fatal(err)
			}
			model, err := s.object("create", members{"base_model": "agl-policy", "seed": 1})
			if err != nil {
				t.Fatal(err)
			}
			var info struct {
				IsLoRA bool `json:"is_lora"`
				Rank   *int `json:"lora_rank"`
			}
			if err := model.call("info", nil, &info); err != nil || info.IsLoRA || info.Rank != nil {
				t.Errorf("%+v, %v: all weights are trained", info, err)
			}
			params := members{"max_tokens": 4, "temperature": 0.0}
			prompt := []int32{1, 2}
			for _, c := range []struct {
				h    handle
				call string
				args members
				want string
			}{
				{handle{s, 0}, "create", members{"base_model": "agl-policy", "seed": 1}, "1 models are in training, as many as this server allows"},
				{handle{s, 0}, "create", members{"base_model": "agl-policy", "seed": 1, "more": members{"train_mlp": false}}, "train_mlp: false is not supported"},
				{handle{s, 0}, "sampler", members{"base_model": "llama"}, `"llama" is unknown`},
				{handle{roomy, 0}, "create_from_state", members{"path": "tinker://x/weights/none", "optimizer": true}, "path: there are no weights tinker://x/weights/none"},
				{handle{roomy, 0}, "create_from_state", members{"path": "tinker://x", "optimizer": true}, "is not tinker://"},
				{base, "sample", members{"prompt": prompt, "num_samples": 1, "params": params, "topk_prompt_logprobs": 2}, "topk_prompt_logprobs: is not supported"},
				{base, "sample", members{"prompt": []int32{999}, "num_samples": 1, "params": params}, "outside the vocabulary"},
			} {
				err := c.h.call(c.call, c.args, nil)
				var failed *sdkError
				if !errors.As(err, &failed) || !strings.Contains(failed.Message, c.want) {
					t.Errorf("%s %v: %v, want %q", c.call, c.args, err, c.want)
				}
			}
			draw := func(params members) (out struct {
				Sequences []struct {
					Tokens     []int32 `json:"tokens"`
					StopReason string  `json:"stop_reason"`
				} `json:"sequences"`
			},
			) {
				t.Helper()
				if err := base.call("sample", members{"prompt": prompt, "num_samples": 1, "params": params}, &out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			whole := draw(params).Sequences[0].Tokens
			// The built-in vocabulary has one character for each token.
			const alphabet = " 0123456789abcdefghijklmnopqrstuvwxyz+-*/=?.▲▼◆■"
			text := []rune(alphabet)
			params["stop"] = []string{string([]rune{text[whole[1]], text[whole[2]]})}
			got := draw(params).Sequences[0]
			if diff := cmp.Diff(whole[:3], got.Tokens); diff != "" || got.StopReason != "stop" {
				t.Errorf("stop %q: %s (-want +got):\n%s", params["stop"], got.StopReason, diff)
			}
		})
	}
}
