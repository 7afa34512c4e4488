package grpo

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// shifted is a model to which the tokens are as likely as current says.
type shifted struct {
	ledger

	current []float32
}

func (s *shifted) Forward(_ context.Context, p tinker.ForwardParams) (res tinker.ForwardResult, err error) {
	for range p.Data {
		res.Logprobs = append(res.Logprobs, s.current)
	}
	return res, nil
}

func (s *shifted) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return s.Forward(ctx, p)
}

// read returns the numbers of a series.
func read(t *testing.T, s *algorithm.Series) []float64 {
	t.Helper()
	if s == nil {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(s.Data)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]float64, len(raw)/2)
	for i := range all {
		all[i] = float64(int16(binary.LittleEndian.Uint16(raw[2*i:]))) * s.Scale
	}
	return all
}

// What is kept of each call are the numbers that the update was made of.
func TestTrainedCalls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		correction CorrectionKind
		penalty    []float32 // of KL, on the targets
		ratios     [2][]float64
		leftOut    [2]string
		advantages []float64 // of the second call, if they differ
	}{
		"of the update":     {ratios: [2][]float64{{0.1}, {0, -2}}},
		"of the correction": {correction: IcePop, ratios: [2][]float64{{0.1}, {0, -2}}, leftOut: [2]string{"", "Ag=="}},
		"all left out":      {correction: Geometric, ratios: [2][]float64{{0.1}, {0, -2}}, leftOut: [2]string{"AQ==", "Aw=="}},
		"with a penalty":    {penalty: []float32{0, 0, 0, 0.25, 0}, ratios: [2][]float64{{0.1}, {0, -2}}, advantages: []float64{-1.75, -2}},
	} {
		tr := trajectory()
		tr.Replies[0].SpanID, tr.Replies[1].SpanID = "a", "b"
		d, _ := datum(tr, 1, []float32{-2, -2})
		for i, by := range tc.penalty {
			d.Advantages[i] += by
		}
		current := []float32{0, -0.2, 0, -0.5, -2.6} // the sampler's are −0.3, −0.5 and −0.6
		u := updater{cfg: Config{Steps: 1, Correction: Correction{Kind: tc.correction}}.withDefaults(), client: &shifted{current: current}}
		step := u.begin(&StepReport{Step: 1})
		if err := step.train(t.Context(), t.Context(), []tinker.Datum{d}); err != nil {
			t.Fatal(name, err)
		}
		s := sample{id: "ro-1", attempt: "at-1", sequences: []adapter.Trajectory{{}, tr}}
		kept := algorithm.Trained{RolloutID: s.id, AttemptID: s.attempt, Run: "run", Step: 1, Calls: step.trainedCalls(&s)}
		span, err := kept.Span()
		if err != nil {
			t.Fatal(name, err)
		}
		text, _ := span.Attributes.GetString(agl.AttrTrainingCalls)
		var calls []algorithm.TrainedCall
		if err := json.Unmarshal([]byte(text), &calls); err != nil || len(calls) != 2 {
			t.Fatalf("%s: %v in %s, want two calls", name, err, text)
		}
		for i, call := range calls {
			if call.SpanID != tr.Replies[i].SpanID || call.LeftOut != tc.leftOut[i] {
				t.Errorf("%s: call %d is %+v, want that of the span %s, and %q left out", name, i, call, tr.Replies[i].SpanID, tc.leftOut[i])
			}
			if diff := cmp.Diff(tc.ratios[i], read(t, call.LogRatios), cmpopts.EquateApprox(0, 1e-4)); diff != "" {
				t.Errorf("%s: ratios of call %d (-want +got):\n%s", name, i, diff)
			}
		}
		if diff := cmp.Diff(tc.advantages, read(t, calls[1].Advantages), cmpopts.EquateApprox(0, 1e-4)); diff != "" || (calls[1].Advantage == nil) != (tc.advantages != nil) || *calls[0].Advantage != -2 {
			t.Errorf("%s: advantages %s (-want +got):\n%s", name, text, diff)
		}
	}
}

// However many tokens a rollout has, what is kept of it is bounded.
func TestTrainedCallsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 100_000
	tr := adapter.Trajectory{TokenIDs: make([]int32, 2*n+1), Replies: []adapter.Reply{{Start: 1, End: n + 1}, {Start: n + 1, End: 2*n + 1}}}
	c := &computed{sampler: make([]float32, 2*n), advantages: make([]float32, 2*n), current: make([]float32, 2*n), weights: make([]float32, 2*n)}
	for i := range c.advantages {
		c.advantages[i] = float32(i%7) / 7
	}
	u := update{computed: map[*int32]*computed{&tr.TokenIDs[0]: c}}
	text, err := json.Marshal(u.trainedCalls(&sample{sequences: []adapter.Trajectory{tr}}))
	if err != nil || len(text) > 800_000 || len(text) < 500_000 {
		t.Errorf("%d bytes (%v), want those of the first call", len(text), err)
	}
	if s := algorithm.NewSeries(2, func(i int) float64 { return math.Log(float64(i)) }); s != nil {
		t.Errorf("what is not finite is kept as %+v", s)
	}
}
