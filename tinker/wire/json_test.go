package wire

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// batch has two data, the second with all tensors.
func batch() tinker.ForwardParams {
	return tinker.ForwardParams{
		Loss: tinker.Loss{Name: tinker.PPO, ClipLow: 0.75, ClipHigh: 1.25},
		Data: []tinker.Datum{
			{
				Input: []int32{1, 2}, Targets: []int32{2, 3},
				Logprobs: []float32{-0.5, -1}, Advantages: []float32{0.1, -0.1},
			},
			{
				Input: []int32{81, 58, 70000}, Targets: []int32{58, 70000, 115}, Weights: []float32{0, 0.5, 1},
				Logprobs: []float32{-1e-7, -2.5, 0}, Advantages: []float32{0, 1.5, 3},
			},
		},
	}
}

func request() ForwardRequest {
	return ForwardRequest{ModelID: "model_1", SeqID: new(int64(7)), Params: batch()}
}

func output() tinker.ForwardResult {
	return tinker.ForwardResult{
		Logprobs: [][]float32{{-0.1, -0.25}, {-3, -4, float32(math.Copysign(0, -1))}},
		Losses:   [][]float32{{0.1, 0}, {1, 2, 1e-30}},
		Metrics:  map[string]float64{"loss:sum": 3.125, "a": 1},
	}
}

// asked is the request of sampled.
func asked() tinker.SampleParams {
	return tinker.SampleParams{Prompt: []int32{1, 2}, NumSamples: 2, MaxTokens: 4, PromptLogprobs: true}
}

func sampled() tinker.SampleResult {
	return tinker.SampleResult{
		Sequences: []tinker.Sequence{
			{Tokens: []int32{32, 98, 258}, Logprobs: []float32{-0.027, -0.179, -1e-6}, StopReason: tinker.StopToken},
			{Tokens: []int32{5}, Logprobs: []float32{0}, StopReason: tinker.StopLength},
		},
		PromptLogprobs: []float32{-0.5},
	}
}

// encoded ends the test if a message cannot be encoded.
func encoded(t testing.TB) func(body []byte, err error) []byte {
	return func(body []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) == ".json" {
		want = []byte(strings.TrimSpace(string(want)))
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestJSONGolden(t *testing.T) {
	t.Parallel()
	golden(t, "forward_backward.json", encoded(t)(EncodeForward(JSONType, request())))
	only := request()
	only.ForwardOnly, only.SeqID = true, nil
	only.Params.Data = only.Params.Data[:1]
	golden(t, "forward.json", encoded(t)(EncodeForward(JSONType, only)))
	golden(t, "forward_backward_output.json", encoded(t)(EncodeForwardResult(JSONType, output())))
	golden(t, "sample_response.json", encoded(t)(EncodeSampleResult(JSONType, sampled(), nil)))
	ask := FromSample(tinker.SampleParams{Prompt: []int32{81, 58}, MaxTokens: 8, Seed: new(uint64(math.MaxUint64)), Stop: []int32{258}})
	ask.SamplingSessionID, ask.SeqID = "sampling_1", new(int64(0))
	golden(t, "sample.json", marshal(t, ask))
}

// Messages have the form that was recorded.
func TestMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message any
		want    string
	}{
		{CreateSessionRequest{Tags: []string{}, UserMetadata: map[string]string{}, SDKVersion: "0.24.1", Type: "create_session"},
			`{"tags":[],"user_metadata":{},"sdk_version":"0.24.1","type":"create_session"}`},
		{CreateModelRequest{SessionID: "s", BaseModel: "b", LoRAConfig: &LoRAConfig{Rank: 8, Seed: new(uint64(1)), TrainUnembed: new(true), TrainMLP: new(true), TrainAttn: new(true)}, Type: "create_model"},
			`{"session_id":"s","model_seq_id":0,"base_model":"b","lora_config":{"rank":8,"seed":1,"train_unembed":true,"train_mlp":true,"train_attn":true},"type":"create_model"}`},
		{OptimStepRequest{ModelID: "m", SeqID: new(int64(2)), AdamParams: AdamParams{LearningRate: new(0.01), Beta1: new(0.9), Beta2: new(0.95), Eps: new(1e-12)}, Type: "optim_step"},
			`{"model_id":"m","seq_id":2,"adam_params":{"learning_rate":0.01,"beta1":0.9,"beta2":0.95,"eps":1e-12,"weight_decay":0,"grad_clip_norm":0},"type":"optim_step"}`},
		{SaveWeightsRequest{ModelID: "m", SeqID: new(int64(3)), Path: "st1", Type: "save_weights"},
			`{"model_id":"m","seq_id":3,"path":"st1","type":"save_weights"}`},
		{LoadWeightsRequest{ModelID: "m", SeqID: new(int64(4)), Path: "tinker://m/weights/st1", Type: "load_weights"},
			`{"model_id":"m","seq_id":4,"path":"tinker://m/weights/st1","optimizer":false,"type":"load_weights"}`},
		{CreateSamplingSessionRequest{SessionID: "s", SamplingSessionSeqID: 1, ModelPath: "tinker://m/snap1", Type: "create_sampling_session"},
			`{"session_id":"s","sampling_session_seq_id":1,"model_path":"tinker://m/snap1","type":"create_sampling_session"}`},
		{SaveWeightsResult{SamplingSessionID: new("x"), Type: "save_weights_for_sampler"},
			`{"path":null,"sampling_session_id":"x","type":"save_weights_for_sampler"}`},
	} {
		if got := string(marshal(t, c.message)); got != c.want {
			t.Errorf("%T is\n%s, want\n%s", c.message, got, c.want)
		}
	}
}

func TestForwardRoundTrip(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{false, true} {
		want := request()
		want.ForwardOnly = only
		for _, media := range []string{JSONType, ProtobufType} {
			got, err := DecodeForward(media, encoded(t)(EncodeForward(media, want)))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v\n%s", media, err, diff)
			}
		}
	}
}

// Python clients leave out members, or write them in other forms.
func TestForwardLeniently(t *testing.T) {
	t.Parallel()
	r, err := DecodeForward(JSONType, []byte(`{"model_id":"m","seq_id":null,"extra":1,"forward_backward_input":{"loss_fn":"cross_entropy",
		"loss_fn_config":null,"data":[{"model_input":{"chunks":[{"tokens":[1]},{"type":"encoded_text","tokens":[2,3]}]},
		"loss_fn_inputs":{"target_tokens":{"data":[2,3,4]},"weights":{"data":[0,1.0,1],"shape":null,"dtype":null}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.CrossEntropy}, Data: []tinker.Datum{
		{Input: []int32{1, 2, 3}, Targets: []int32{2, 3, 4}, Weights: []float32{0, 1, 1}},
	}}
	if diff := cmp.Diff(want, r.Params); diff != "" || r.SeqID != nil {
		t.Errorf("seq_id %v (-want +got):\n%s", r.SeqID, diff)
	}
}

func TestForwardRejects(t *testing.T) {
	t.Parallel()
	const datum = `{"model_input":{"chunks":[{"type":%TYPE%,"tokens":[1]}]},"loss_fn_inputs":{"%NAME%":%TENSOR%}}`
	body := func(kind, name, tensor string) string {
		return `{"model_id":"m","forward_backward_input":{"loss_fn":"ppo","data":[` +
			strings.NewReplacer("%TYPE%", kind, "%NAME%", name, "%TENSOR%", tensor).Replace(datum) + `]}}`
	}
	for _, c := range []struct{ body, want string }{
		{`{`, "body: "},
		{`{"model_id":"m"}`, "one of forward_backward_input and forward_input"},
		{body(`"image"`, "weights", `{"data":[1]}`), `data[0]: model_input: chunks[0]: type "image"`},
		{body(`null`, "labels", `{"data":[1]}`), `"labels" is unknown; allowed are "target_tokens"`},
		{body(`null`, "weights", `{"data":null}`), "data: an array of numbers"},
		{body(`null`, "weights", `{"data":{}}`), "/weights/data"},
		{body(`null`, "weights", `{"data":[1],"dtype":"int8"}`), `dtype: "int8" is unknown`},
		{body(`null`, "weights", `{"data":[1,2],"shape":[3]}`), "shape: [3] has 3 elements; there are 2"},
		{body(`null`, "weights", `{"data":[1],"shape":[-1,-1]}`), "shape: [-1 -1]"},
		{body(`null`, "weights", `{"data":[1e99],"dtype":"float32"}`), "body: "},
		{body(`null`, "weights", `{"data":[1],"sparse_crow_indices":[0]}`), "sparse tensors"},
		{body(`null`, "target_tokens", `{"data":[4294967296]}`), "4294967296 is not a token id"},
		{body(`null`, "target_tokens", `{"data":[0.5]}`), "0.5 is not a token id"},
		{`{"forward_input":{"data":[` + strings.Repeat("{},", maxMessages) + `{}]}}`, "body: more than 1048576 messages in one"},
		{`{"forward_input":{"data":[` + strings.Repeat("null,", maxMessages) + `{}]}}`, "body: more than 1048576 messages in one"},
	} {
		_, err := DecodeForward(JSONType, []byte(c.body))
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.1000s:\n%v, want invalid with %q", c.body, err, c.want)
		}
	}
}

func TestForwardResult(t *testing.T) {
	t.Parallel()
	want := output()
	want.Loss = 0.0 + float64(float32(0.1)) + 0 + 1 + 2 + float64(float32(1e-30))
	for _, media := range []string{JSONType, ProtobufType} {
		got, err := DecodeForwardResult(media, encoded(t)(EncodeForwardResult(media, output())), batch())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", media, err, diff)
		}
		if !math.Signbit(float64(got.Logprobs[1][2])) {
			t.Errorf("%s: -0 became 0", media)
		}
	}
	// An engine that returns no losses.
	bare := newResult(output())
	for i := range bare.Outputs {
		bare.Outputs[i].Losses = nil
	}
	res, err := bare.result(batch())
	if err != nil {
		t.Fatal(err)
	}
	ratio := math.Exp(-0.1+0.5) * 0.1
	if got := float64(res.Losses[0][0]); math.Abs(got+min(ratio, 0.125)) > 1e-6 {
		t.Errorf("the loss of the first position is %v", got)
	}
	for _, c := range []struct {
		change func(r *resultJSON)
		want   string
	}{
		{func(r *resultJSON) { r.Outputs = r.Outputs[1:] }, "1 outputs for 2 data"},
		{func(r *resultJSON) { r.Outputs[1].Logprobs = nil }, "output 1 has 0 logprobs for 3 targets"},
		{func(r *resultJSON) { r.Outputs[0].Losses = numbers{} }, "output 0 has 0 elementwise_loss"},
	} {
		r := newResult(output())
		c.change(&r)
		if _, err := r.result(batch()); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestSampleResult(t *testing.T) {
	t.Parallel()
	for _, media := range []string{JSONType, ProtobufType} {
		got, err := DecodeSampleResult(media, encoded(t)(EncodeSampleResult(media, sampled(), nil)), asked())
		if diff := cmp.Diff(sampled(), got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", media, err, diff)
		}
	}
	if body := string(encoded(t)(EncodeSampleResult(JSONType, tinker.SampleResult{}, nil))); body != `{"sequences":[],"prompt_logprobs":null,"type":"sample"}` {
		t.Errorf("no sequences: %s", body)
	}
	long := tinker.SampleResult{PromptLogprobs: []float32{-1, -2, -3}}
	if body := string(encoded(t)(EncodeSampleResult(JSONType, long, new(1)))); !strings.Contains(body, `"prompt_logprobs":[null,null,null,-3]`) {
		t.Errorf("the last log-probability: %s", body)
	}
}

func TestSampleParams(t *testing.T) {
	t.Parallel()
	p := tinker.SampleParams{
		Prompt: []int32{1}, NumSamples: 3, MaxTokens: 4, Temperature: 0.5, TopK: 2, TopP: 0.9, Stop: []int32{7},
		Seed: new(uint64(math.MaxUint64)), PromptLogprobs: true,
	}
	var r SampleRequest
	if err := json.Unmarshal(marshal(t, FromSample(p)), &r); err != nil {
		t.Fatal(err)
	}
	got, err := r.SampleParams()
	if diff := cmp.Diff(p, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, c := range []struct{ params, want string }{
		{`{"sampling_params":{}}`, "max_tokens: is required"},
		{`{"sampling_params":{"max_tokens":1,"stop":"END"}}`, "this engine knows tokens"},
		{`{"sampling_params":{"max_tokens":1,"stop":["a"]}}`, "this engine knows tokens"},
		{`{"sampling_params":{"max_tokens":1,"stop":[1]},"prompt_logprobs":true}`, ""},
		{`{"sampling_params":{"max_tokens":1},"topk_prompt_logprobs":3}`, "topk_prompt_logprobs: is not supported"},
		{`{"sampling_params":{"max_tokens":1},"topk_sample_logprobs":3}`, "topk_sample_logprobs: is not supported"},
		{`{"sampling_params":{"max_tokens":1},"target_prompt_logprobs":{"data":[1]}}`, "target_prompt_logprobs: is not supported"},
		{`{"sampling_params":{"max_tokens":1},"target_prompt_logprobs":null,"record_stability_info":null}`, ""},
		{`{"sampling_params":{"max_tokens":1},"prompt_alt_tokens_k":1}`, "prompt_alt_tokens_k: is not supported"},
		{`{"sampling_params":{"max_tokens":1},"record_stability_info":true}`, "record_stability_info: is not supported"},
		{`{"prompt":{"chunks":[{"tokens":[1,2,3]}]},"sampling_params":{"max_tokens":1},"prompt_logprobs":true,"prompt_logprobs_last_n":2}`, ""},
		{`{"prompt":{"chunks":[{"tokens":[1,2,3]}]},"sampling_params":{"max_tokens":1},"prompt_logprobs":true,"prompt_logprobs_last_n":3}`, "allows 1 to 2"},
		{`{"prompt":{"chunks":[{"tokens":[1,2,3]}]},"sampling_params":{"max_tokens":1},"prompt_logprobs_last_n":1}`, "goes with prompt_logprobs"},
		{`{"sampling_params":{"max_tokens":1,"stop":null},"prompt_logprobs":null}`, ""},
	} {
		var r SampleRequest
		if err := json.Unmarshal([]byte(c.params), &r); err != nil {
			t.Fatalf("%s: %v", c.params, err)
		}
		_, err := r.SampleParams()
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.params, err, c.want)
		}
	}
	if err := json.Unmarshal([]byte(`{"sampling_params":{"stop":{}}}`), new(SampleRequest)); err == nil {
		t.Error("an object stops nothing")
	}
}

func TestSampleResultRejects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, want string }{
		{`{"sequences":[]}`, "0 sequences; 1 were asked for"},
		{`{"sequences":[{"stop_reason":"stop","tokens":[1],"logprobs":null}]}`, "sequence 0 has no logprobs"},
		{`{"sequences":[{"stop_reason":"stop","tokens":[1,2],"logprobs":[-1]}]}`, "2 tokens and 1 logprobs"},
		{`{"sequences":[{"stop_reason":"stop","tokens":[1,2],"logprobs":[-1,null]}]}`, "null is not a number"},
		{`{"sequences":[{"stop_reason":"eos","tokens":[],"logprobs":[]}]}`, `stop_reason "eos"`},
	} {
		if _, err := DecodeSampleResult(JSONType, []byte(c.body), tinker.SampleParams{}); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
}

// JSON has no NaN: a result with one is an error.
func TestNotFinite(t *testing.T) {
	t.Parallel()
	o := output()
	o.Logprobs[0] = []float32{float32(math.NaN()), 0}
	if b, err := EncodeForwardResult(JSONType, o); err == nil {
		t.Errorf("%s", b)
	}
}

// Some servers write null in place of NaN, which is no 0.
func TestNullIsNoNumber(t *testing.T) {
	t.Parallel()
	p := tinker.ForwardParams{Data: []tinker.Datum{{Targets: []int32{1, 2}}}}
	const output = `{"loss_fn_outputs":[{"logprobs":{"data":[-1,%s],"shape":null},"elementwise_loss":{"data":[1,0]}}],"metrics":{}}`
	for value, want := range map[string]bool{"-2": true, "null": false} {
		res, err := DecodeForwardResult(JSONType, fmt.Appendf(nil, output, value), p)
		if want != (err == nil) || err != nil && !strings.Contains(err.Error(), "/loss_fn_outputs/0/logprobs/data/1") {
			t.Errorf("%s: %v, %v", value, res, err)
		}
	}
}

func FuzzTensorJSON(f *testing.F) {
	f.Add([]byte(`{"data":[1,2.5],"dtype":"float32","shape":[2]}`))
	f.Add([]byte(`{"data":[1,-2],"shape":[1,2]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var values, valuesAgain numbers
		if json.Unmarshal(b, &values) == nil {
			again(t, values, &valuesAgain)
		}
		var ids, idsAgain tokenIDs
		if json.Unmarshal(b, &ids) == nil {
			again(t, ids, &idsAgain)
		}
	})
}

// again checks that a value that was read is written and read as the same.
func again[T any](t *testing.T, v T, second *T) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, second); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if textAgain, _ := json.Marshal(*second); string(textAgain) != string(text) {
		t.Errorf("%s became %s", text, textAgain)
	}
}

func FuzzForwardJSON(f *testing.F) {
	b, err := EncodeForward(JSONType, request())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"forward_input":{"data":[{"loss_fn_inputs":{"weights":{"data":[]}}}]}}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = DecodeForward(JSONType, b)
		_, _ = DecodeForwardResult(JSONType, b, batch())
		_, _ = DecodeSampleResult(JSONType, b, asked())
		var s SampleRequest
		if json.Unmarshal(b, &s, jsontext.AllowDuplicateNames(true)) == nil {
			_, _ = s.SampleParams()
		}
	})
}
