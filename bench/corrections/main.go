// Command corrections computes the bias and the variance of each correction of grpo on a problem where both are exact: a bandit whose
// best arm is known, pulled several times in a row, with a sampler that is older than the policy or disagrees with it. It writes the
// figures of docs/rl.md and prints its tables.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/plot"
)

type options struct {
	Figures string `default:"docs/images" help:"The folder of the figures." placeholder:"DIR"`
}

func main() {
	bench.Main("corrections", "Computes the bias and variance of corrections on a bandit.",
		func(_ context.Context, opt options) error { return run(opt, os.Stdout) })
}

func run(opt options, out io.Writer) error {
	for name, chart := range charts() {
		if err := os.WriteFile(filepath.Join(opt.Figures, name), chart.SVG(), 0o644); err != nil {
			return err
		}
	}
	for _, s := range scenarios() {
		if _, err := io.WriteString(out, s.table()+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// scenario is a reason why sampler and policy differ.
type scenario struct {
	file, label string
	// sampler returns the log-probabilities of the sampler at a distance.
	sampler   func(b bandit, distance int) vector
	distances []int    // of the table
	drawn     []string // the estimators of the figure: those that differ
}

func scenarios() []scenario {
	return []scenario{
		{"stale", "versions behind", bandit.older, []int{1, 2, 4, 8}, []string{"none", "ppo", "sequence_tis", "sequence_mis", "gspo", "geometric"}},
		{"disagreement", "nats of disagreement about a rare token", bandit.disagreeing, []int{1, 2, 3, 4}, []string{"none", "ppo", "token_tis", "icepop", "sequence_tis", "geometric"}},
	}
}

// lengths returns the lengths of sequences in the tables.
func lengths() []int { return []int{4, 16, 64} }

const figureLength = 16

// charts returns the figures by file name.
func charts() map[string]plot.Chart {
	all := map[string]plot.Chart{}
	for _, s := range scenarios() {
		bias := plot.Chart{Title: fmt.Sprintf("Bias, %d tokens", figureLength), XLabel: s.label}
		deviation := plot.Chart{Title: fmt.Sprintf("Standard deviation, %d tokens", figureLength), XLabel: s.label}
		b := bandit{pulls: figureLength}
		for _, e := range estimators() {
			if !slices.Contains(s.drawn, e.name) {
				continue
			}
			var biases, deviations []plot.Point
			for distance := range s.distances[len(s.distances)-1] + 1 {
				q := b.quality(e, s.sampler(b, distance))
				biases = append(biases, plot.Point{X: float64(distance), Y: q.bias})
				deviations = append(deviations, plot.Point{X: float64(distance), Y: q.deviation})
			}
			bias.Series = append(bias.Series, plot.Series{Name: e.name, Points: biases})
			deviation.Series = append(deviation.Series, plot.Series{Name: e.name, Points: deviations})
		}
		all["corrections-"+s.file+"-bias.svg"], all["corrections-"+s.file+"-deviation.svg"] = bias, deviation
	}
	return all
}

// table compares the estimators in a scenario.
func (s scenario) table() string {
	var t strings.Builder
	fmt.Fprintf(&t, "| tokens | %s | KL |", s.label)
	for _, e := range estimators() {
		fmt.Fprintf(&t, " `%s` |", e.name)
	}
	t.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(estimators())) + "\n")
	for _, pulls := range lengths() {
		b := bandit{pulls}
		for _, distance := range s.distances {
			sampler := s.sampler(b, distance)
			fmt.Fprintf(&t, "| %d | %d | %.4f |", pulls, distance, kl(sampler, policy()))
			for _, e := range estimators() {
				q := b.quality(e, sampler)
				fmt.Fprintf(&t, " %.2f ± %.2f |", q.bias, q.deviation)
			}
			t.WriteString("\n")
		}
	}
	return t.String()
}

// estimator is a loss with a correction.
type estimator struct {
	name       string
	loss       tinker.Loss
	correction grpo.Correction
}

func estimators() (list []estimator) {
	plain := tinker.Loss{Name: tinker.ImportanceSampling}
	list = append(list, estimator{"none", plain, grpo.Correction{}}, estimator{"ppo", tinker.Loss{Name: tinker.PPO}, grpo.Correction{}})
	for _, kind := range grpo.CorrectionKinds() {
		list = append(list, estimator{string(kind), plain, grpo.Correction{Kind: kind}})
	}
	return list
}

// bandit is pulled several times in a row; each pull is a token. A sequence has reward 1 if at least half of its pulls are of the
// best arm, so that a token's gradient depends on the others. All pulls have the same probabilities, the softmax of the parameters,
// so that only the counts of the arms matter and all sums are exact.
type bandit struct{ pulls int }

const (
	arms  = 4 // the first is the best
	batch = 128
	step  = 0.05 // by which a version moves the parameters, along the gradient
	// unlikely counts are left out of sums.
	unlikely = 1e-10
)

type vector [arms]float64

// policy returns the log-probabilities of the policy in training, which pulls the best arm half of the time.
func policy() vector {
	return vector{math.Log(0.5), math.Log(0.25), math.Log(0.2), math.Log(0.05)}
}

// older returns a sampler that is some versions behind. Each version moved the parameters along the gradient of the policy.
func (b bandit) older(versions int) vector {
	theta := policy()
	g := b.gradient(theta)
	for a := range theta {
		theta[a] -= float64(versions) * step * g[a] / g.length()
	}
	return logSoftmax(theta)
}

// disagreeing returns a sampler of the same version whose probability of the rarest arm is too low by so many nats.
func (bandit) disagreeing(nats int) vector {
	theta := policy()
	theta[arms-1] -= float64(nats)
	return logSoftmax(theta)
}

// gradient returns the gradient of the pass rate of a policy.
func (b bandit) gradient(policy vector) (g vector) {
	b.each(policy, func(counts [arms]int, probability float64) {
		score := b.score(counts, policy)
		for a := range g {
			g[a] += probability * b.reward(counts) * score[a]
		}
	})
	return g
}

// score returns the gradient of the log-probability of a sequence.
func (b bandit) score(counts [arms]int, policy vector) (s vector) {
	for a := range s {
		s[a] = float64(counts[a]) - float64(b.pulls)*math.Exp(policy[a])
	}
	return s
}

func (b bandit) reward(counts [arms]int) float64 {
	if 2*counts[0] >= b.pulls {
		return 1
	}
	return 0
}

// each calls do with all counts of arms in a sequence and their probability.
func (b bandit) each(policy vector, do func(counts [arms]int, probability float64)) {
	for i := range b.pulls + 1 {
		for j := range b.pulls - i + 1 {
			for k := range b.pulls - i - j + 1 {
				counts := [arms]int{i, j, k, b.pulls - i - j - k}
				log := logFactorial(b.pulls)
				for a, n := range counts {
					log += float64(n)*policy[a] - logFactorial(n)
				}
				if probability := math.Exp(log); probability > unlikely {
					do(counts, probability)
				}
			}
		}
	}
}

// kl returns the Kullback-Leibler divergence of the sampler from the policy, per token.
func kl(sampler, policy vector) (sum float64) {
	for a := range sampler {
		sum += math.Exp(sampler[a]) * (sampler[a] - policy[a])
	}
	return sum
}

// quality is the quality of an estimate of the gradient, relative to the gradient's length.
type quality struct {
	bias      float64
	deviation float64 // of the mean of a batch
}

// quality compares the estimates from a sampler's sequences with the gradient of the policy.
func (b bandit) quality(e estimator, sampler vector) quality {
	policy := policy()
	baseline := 0.0
	b.each(sampler, func(counts [arms]int, probability float64) { baseline += probability * b.reward(counts) })
	var mean vector
	square := 0.0
	b.each(sampler, func(counts [arms]int, probability float64) {
		estimate := e.gradient(counts, sampler, policy, b.reward(counts)-baseline)
		for a := range mean {
			mean[a] += probability * estimate[a]
			square += probability * estimate[a] * estimate[a]
		}
	})
	truth := b.gradient(policy)
	var away vector
	for a := range away {
		away[a] = mean[a] - truth[a]
	}
	spread := math.Sqrt(max(square-mean.length()*mean.length(), 0) / batch)
	return quality{away.length() / truth.length(), spread / truth.length()}
}

// gradient returns the estimate from one sequence, by the loss and the correction that training uses.
func (e estimator) gradient(counts [arms]int, sampler, policy vector, advantage float64) (g vector) {
	var d tinker.Datum
	var proximal []float32
	for a, n := range counts {
		for range n {
			d.Input, d.Targets = append(d.Input, 0), append(d.Targets, int32(a))
			d.Weights, d.Advantages = append(d.Weights, 1), append(d.Advantages, float32(advantage))
			d.Logprobs, proximal = append(d.Logprobs, float32(sampler[a])), append(proximal, float32(policy[a]))
		}
	}
	kept, _ := e.correction.Apply([]tinker.Datum{d}, [][]float32{proximal})
	loss := e.loss.WithDefaults()
	for _, k := range kept {
		for i, arm := range k.Targets {
			_, slope := loss.At(&k, i, proximal[i], func(x float32) float32 { return float32(math.Exp(float64(x))) })
			for a := range g {
				g[a] += float64(slope) * math.Exp(policy[a])
			}
			g[arm] -= float64(slope)
		}
	}
	return g
}

func (v vector) length() float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

func logSoftmax(theta vector) vector {
	sum := 0.0
	for _, t := range theta {
		sum += math.Exp(t)
	}
	for a := range theta {
		theta[a] -= math.Log(sum)
	}
	return theta
}

func logFactorial(n int) float64 {
	log, _ := math.Lgamma(float64(n + 1))
	return log
}
