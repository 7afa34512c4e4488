package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker"
)

// A loss sends all of its own settings, with defaults, and none of another loss: servers refuse those.
func TestLossConfig(t *testing.T) {
	t.Parallel()
	data := []tinker.Datum{{Input: []int32{1}, Targets: []int32{2}, Logprobs: []float32{-1}, Advantages: []float32{1}}}
	for loss, want := range map[tinker.Loss]map[string]float64{
		{Name: tinker.CrossEntropy}:                  nil,
		{Name: tinker.ImportanceSampling, Beta: 0.5}: nil,
		{Name: tinker.PPO, ClipHigh: 1.5}:            {"clip_low_threshold": float64(float32(0.8)), "clip_high_threshold": 1.5},
		{Name: tinker.CISPO, ClipLow: 0.5}:           {"clip_low_threshold": 0.5, "clip_high_threshold": float64(float32(1.2))},
		{Name: tinker.DRO, ClipLow: 0.5}:             {"beta": float64(float32(0.05))},
		{Name: tinker.DRO, Beta: 0.25}:               {"beta": 0.25},
	} {
		if diff := cmp.Diff(want, lossConfig(loss)); diff != "" {
			t.Errorf("%+v: %s", loss, diff)
		}
		sent := ForwardRequest{ModelID: "m", Params: tinker.ForwardParams{Data: data, Loss: loss}}
		for _, name := range []string{JSONType, ProtobufType} {
			got, err := DecodeForward(name, encoded(t)(EncodeForward(name, sent)))
			if err != nil {
				t.Fatal(err)
			}
			p := got.Params
			was, is := loss.WithDefaults(), p.Loss.WithDefaults()
			if was.Name != is.Name || loss.Name.Clips() && (was.ClipLow != is.ClipLow || was.ClipHigh != is.ClipHigh) || loss.Name == tinker.DRO && was.Beta != is.Beta {
				t.Errorf("%s: %+v arrives as %+v", name, was, is)
			}
		}
	}
}
