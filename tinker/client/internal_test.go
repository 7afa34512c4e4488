package client

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s slots
		model, other := newSlot(), newSlot()
		a, b := tinker.Path{Model: "m", Kind: tinker.KindSampler, Name: "a"}, tinker.Path{Model: "m", Kind: tinker.KindSampler, Name: "b"}
		begin := func(path tinker.Path) (end func()) {
			t.Helper()
			end, err := s.beginSample(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		begin(a)() // of a model that is not known
		s.publish(model, a)
		s.publish(other, tinker.Path{Model: "other", Kind: tinker.KindSampler, Name: "a"})
		if _, err := s.beginSample(t.Context(), b); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("not the newest snapshot: %v", err)
		}
		end := begin(a)
		trained, sampled := false, false
		go func() {
			if err := s.beginTraining(t.Context(), model); err != nil {
				t.Error(err)
			}
			trained = true
		}()
		synctest.Wait()
		go func() {
			_, err := s.beginSample(t.Context(), a)
			sampled = true
			if !errors.Is(err, agl.ErrIllegalState) {
				t.Errorf("the weights have changed: %v", err)
			}
		}()
		synctest.Wait()
		if trained || sampled {
			t.Fatalf("trained %v beside a sample, sampled %v beside training", trained, sampled)
		}
		if err := s.beginTraining(t.Context(), other); err != nil {
			t.Errorf("another model: %v", err)
		}
		end()
		synctest.Wait()
		if !trained || sampled {
			t.Fatalf("trained %v, sampled %v", trained, sampled)
		}
		s.endTraining(model, true)
		synctest.Wait()
		if !sampled {
			t.Error("a sample waits for ever")
		}
		// A training call that gives up blocks no sample.
		s.publish(model, b)
		end = begin(b)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.beginTraining(ctx, model); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		begin(b)()
		end()
		// A gradient changes no weights, and a model that is unloaded is not known.
		if err := s.beginTraining(t.Context(), model); err != nil {
			t.Error(err)
		}
		s.endTraining(model, false)
		begin(b)()
		s.remove(model)
		begin(a)()
	})
}

func TestDivide(t *testing.T) {
	t.Parallel()
	batch := make([]tinker.Datum, 7)
	for i := range batch {
		batch[i].Input = make([]int32, 10)
	}
	batch[3].Input = make([]int32, 1000)
	size := bytesPerDatum + 10*bytesPerToken
	for _, c := range []struct {
		data, bytes int
		want        []int
	}{
		{100, 1 << 30, []int{7}},
		{3, 1 << 30, []int{3, 3, 1}},
		{100, 2 * size, []int{2, 1, 1, 2, 1}}, // a datum that is too large goes alone
		{1, 1, []int{1, 1, 1, 1, 1, 1, 1}},
	} {
		var got []int
		for _, chunk := range divide(batch, c.data, c.bytes) {
			got = append(got, len(chunk))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d data, %d bytes: %v, want %v", c.data, c.bytes, got, c.want)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	got := merge([]tinker.ForwardResult{
		{Logprobs: [][]float32{{-1}, {-2}}, Losses: [][]float32{{1}, {2}}, Loss: 3, Metrics: map[string]float64{"a": 1, "n:sum": 2, "n:min": -1, "n:max": 1}},
		{Logprobs: [][]float32{{-3}}, Losses: [][]float32{{4}}, Loss: 4, Metrics: map[string]float64{"a": 4, "n:sum": 3, "n:min": -2, "n:max": 7}},
	})
	want := tinker.ForwardResult{
		Logprobs: [][]float32{{-1}, {-2}, {-3}}, Losses: [][]float32{{1}, {2}, {4}}, Loss: 7,
		Metrics: map[string]float64{"a": 2, "n:sum": 5, "n:min": -2, "n:max": 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The engine's average of a scaled batch is the sum of the batch.
func TestScale(t *testing.T) {
	t.Parallel()
	for _, name := range []tinker.LossName{tinker.ImportanceSampling, tinker.PPO, tinker.CISPO} {
		p := tinker.ForwardParams{Loss: tinker.Loss{Name: name}, Data: []tinker.Datum{
			{Input: make([]int32, 3), Weights: []float32{0, 1, 0.5}, Logprobs: []float32{-1, -2, -3}, Advantages: []float32{1, 2, -2}},
			{Input: make([]int32, 2), Logprobs: []float32{-1, -1}, Advantages: []float32{-3, 0.25}},
		}}
		logprobs := [][]float32{{-1, -1.5, -3.5}, {-1.25, -0.5}}
		sent, err := scaled(p.Data)
		if err != nil {
			t.Fatal(err)
		}
		want, mean := 0.0, 0.0
		answer := tinker.ForwardResult{Logprobs: logprobs}
		for k := range p.Data {
			weight := 0.0
			for i := range p.Data[k].Input {
				weight += 1
				if w := p.Data[k].Weights; w != nil {
					weight += float64(w[i]) - 1
				}
			}
			for _, v := range p.Loss.Elementwise(&p.Data[k], logprobs[k]) {
				want += float64(v)
			}
			losses := p.Loss.Elementwise(&sent[k], logprobs[k])
			answer.Losses = append(answer.Losses, losses)
			for _, v := range losses {
				mean += float64(v) / weight / float64(len(p.Data))
			}
		}
		if math.Abs(mean-want) > 1e-5 {
			t.Errorf("%s: the engine's mean is %v, the sum %v", name, mean, want)
		}
		res, err := summed(engines.Engine{}, p, nil, func(tinker.ForwardParams) (tinker.ForwardResult, error) { return answer, nil })
		if err != nil || math.Abs(res.Loss-want) > 1e-5 {
			t.Errorf("%s: the reported loss is %v, %v, want %v", name, res.Loss, err, want)
		}
		if p.Data[0].Advantages[1] != 2 {
			t.Error("the caller's data changed")
		}
	}
	_, err := scaled([]tinker.Datum{{Input: make([]int32, 1), Weights: []float32{0}}})
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "their sum is 0") {
		t.Error(err)
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		code   agl.Code
		want   string
	}{
		{400, `{"detail":"bad rank"}`, agl.CodeInvalid, "400 Bad Request: bad rank"},
		{422, `{"detail":[{"loc":["body"],"msg":"no"}]}`, agl.CodeInvalid, `"msg":"no"`},
		{422, `{"detail":"` + strings.Repeat("x", 9000) + `"}`, agl.CodeInvalid, "…"},
		{500, `Internal Server Error`, agl.CodeInternal, "Internal Server Error"},
		{502, `<html>bad gateway</html>`, agl.CodeUnavailable, "bad gateway"},
		{503, ``, agl.CodeUnavailable, "503"},
		{409, `{"detail":"d","code":"illegal_state"}`, agl.CodeIllegalState, ": d"},
		{404, `{"error":"e","code":"nonsense"}`, agl.CodeNotFound, ": e"},
		{401, ``, agl.CodeUnauthorized, "401"},
		{405, ``, agl.CodeUnimplemented, "405"},
		{410, ``, agl.CodeEvicted, "410"},
		{429, ``, agl.CodeExhausted, "429"},
		{302, ``, agl.CodeInternal, "302"},
	} {
		err := reply{status: c.status, body: []byte(c.body)}.problem("/x")
		if agl.ErrorCode(err) != c.code || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 {
			t.Errorf("%d %.60s: %s %.300v, want %s with %q", c.status, c.body, agl.ErrorCode(err), err, c.code, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "URL"},
		{Config{URL: "ftp://x"}, "URL"},
		{Config{URL: "http://x?y=1"}, "URL"},
		{Config{URL: "http://x", Encoding: "xml"}, "Encoding"},
		{Config{URL: "http://x", MaxSamples: -1}, "MaxSamples"},
		{Config{URL: "http://x", CallTimeout: -1}, "CallTimeout"},
		{Config{URL: "http://x", Engine: &engines.Engine{Normalization: "median"}}, "Engine.Normalization"},
	} {
		if _, err := New(c.cfg); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want invalid with %q", c.cfg, err, c.want)
		}
	}
	for url, want := range map[string]string{
		"http://x": "http://x/api/v1", "http://x/": "http://x/api/v1", "https://x/y/api/v1/": "https://x/y/api/v1",
	} {
		c, err := New(Config{URL: url})
		if err != nil || c.transport.base != want {
			t.Errorf("%s: %q, %v, want %q", url, c.transport.base, err, want)
		}
	}
}

// Folded weights change no loss and no gradient of the losses that are linear in advantages, and leave no weight to be ignored.
func TestFolded(t *testing.T) {
	t.Parallel()
	exp := func(x float32) float32 { return float32(math.Exp(float64(x))) }
	for _, name := range tinker.LossNames() {
		loss := tinker.Loss{Name: name}.WithDefaults()
		p := tinker.ForwardParams{Loss: loss, Data: []tinker.Datum{
			{Input: make([]int32, 4), Targets: make([]int32, 4), Weights: []float32{0, 0.25, 0.25, 0.5}, Logprobs: []float32{0, -1, -2, -0.5}, Advantages: []float32{3, 1, -2, 0.5}},
			{Input: make([]int32, 1), Targets: make([]int32, 1), Logprobs: []float32{-1}, Advantages: []float32{2}},
		}}
		got := folded(p)
		if linear := name != tinker.CrossEntropy && name != tinker.DRO; linear != (got.Data[0].Weights == nil) {
			t.Errorf("%s: weights %v", name, got.Data[0].Weights)
		}
		for i, now := range []float32{-3, -0.1, -1.5, -2} {
			wantLoss, wantSlope := loss.At(&p.Data[0], i, now, exp)
			gotLoss, gotSlope := loss.At(&got.Data[0], i, now, exp)
			if math.Abs(float64(wantLoss-gotLoss)) > 1e-6 || math.Abs(float64(wantSlope-gotSlope)) > 1e-6 {
				t.Errorf("%s, position %d: loss %v and slope %v, want %v and %v", name, i, gotLoss, gotSlope, wantLoss, wantSlope)
			}
		}
		if p.Data[0].Weights == nil || p.Data[0].Advantages[1] != 1 || got.Data[1].Advantages[0] != 2 {
			t.Errorf("%s: the caller's data changed: %+v", name, p.Data)
		}
	}
}

// A server that wants fewer calls gets fewer, whatever the settings allow.
func TestMaxSamples(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, wire.ClientConfig) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, `{"sample_max_concurrent_requests":2}`)
	}))
	defer web.Close()
	for _, settings := range []int{1, 2, 64, math.MaxInt} {
		c, err := New(Config{URL: web.URL, MaxSamples: settings})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := int64(min(settings, 2))
		if c.inFlight.TryAcquire(want+1) || !c.inFlight.TryAcquire(want) {
			t.Errorf("MaxSamples %d: not %d calls at once", settings, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
