package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/agl-go/agl/tinker"
)

func BenchmarkTrainStep(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			cfg := Config{Vocab: 48, Workers: workers}.withDefaults()
			l := newLayout(cfg.shape())
			t := newTrainer(cfg, l, l.initialize(1))
			r := rand.New(rand.NewPCG(1, 2))
			data := make([]tinker.Datum, 64)
			for i := range data {
				for range 32 {
					data[i].Input = append(data[i].Input, r.Int32N(48))
					data[i].Targets = append(data[i].Targets, r.Int32N(48))
				}
			}
			for b.Loop() {
				if _, err := t.forward(context.Background(), data, tinker.Loss{Name: tinker.CrossEntropy}, true); err != nil {
					b.Fatal(err)
				}
				if _, err := t.adam(tinker.AdamParams{LearningRate: 1e-3, GradClipNorm: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSample12(b *testing.B) {
	cfg := Config{Vocab: 48}.withDefaults()
	l := newLayout(cfg.shape())
	s := &sampler{w: newWeights(l, l.initialize(1)), spec: cfg.spec(), spare: &sync.Pool{New: func() any { return newDecoder(l, kernel{simd: true}) }}}
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	seed := uint64(1)
	for b.Loop() {
		if _, err := s.Sample(context.Background(), tinker.SampleParams{Prompt: prompt, MaxTokens: 12, Temperature: 1, Seed: &seed}); err != nil {
			b.Fatal(err)
		}
	}
}
