package engines

import (
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// Encoding is the form of forward_backward requests and of results.
type Encoding string

// The encodings.
const (
	// Auto is either: a client finds out which one a server takes, a server takes both.
	Auto     Encoding = "auto"
	JSON     Encoding = "json"
	Protobuf Encoding = "protobuf"
)

// Normalization says how an engine reduces the losses of a batch to one number.
type Normalization string

const (
	// NormalizationUnknown means that the engine normalizes in a way of its own, or that the way is not known.
	NormalizationUnknown Normalization = ""
	// Sum adds the losses of all positions and data, as the protocol defines it.
	Sum Normalization = "sum"
	// DatumMean divides the loss of each datum by the sum of its weights, and takes the mean over all data since the
	// last optimizer step.
	DatumMean Normalization = "datum_mean"
)

// Order says how an engine treats the sequence ids of a model's calls.
type Order string

const (
	// Arrival runs calls in the order in which they arrive. A call that is sent again with the same id and body runs once.
	Arrival Order = ""
	// Strict takes the ids of a model only in order, from 1, and answers 409 to all others.
	Strict Order = "strict"
	// Ignored disregards ids: a call that is sent again runs again.
	Ignored Order = "ignored"
)

// Engine describes an engine. The zero value of each field is the least capable.
type Engine struct {
	// Name is the word for the engine in run files, such as skyrl-jax; Title is its name in prose. Both are empty for
	// an engine that is not in the table.
	Name, Title string

	// Encoding is the encoding that the engine takes; empty is unknown.
	Encoding Encoding
	// Order says how it treats sequence ids.
	Order Order
	// SelfDescribing is true when the engine reports the fields below itself, in its answer to get_server_capabilities.
	SelfDescribing bool

	// Losses are the losses that it has; nil is unknown.
	Losses []tinker.LossName
	// Normalization says how losses become one number.
	Normalization Normalization
	// ImmutableSnapshots, OptimizerOptional and Deterministic are those of [tinker.Capabilities].
	ImmutableSnapshots, OptimizerOptional, Deterministic bool
	// Idempotent is true when a call that is sent again with the same ids and body runs once, and both are answered
	// with its result.
	Idempotent bool
	// LoadDiscardsGradient is true when load_weights drops a gradient that no step has applied. Elsewhere the gradient
	// stays, and may even outlive its model.
	LoadDiscardsGradient bool
	// AdvantagesOnly is true when the losses of policies take advantages and no weights: a client multiplies them.
	AdvantagesOnly bool
	// WideSeeds is true when seeds have 64 bits; elsewhere they have 31.
	WideSeeds bool

	// Vocab and Context are the number of token ids and the longest sequence of the engine's models, for engines that
	// do not say; 0 is unknown.
	Vocab, Context int
}

// Assumed describes an engine about which nothing is known: it has three losses of the protocol, and otherwise the least.
func Assumed() Engine { return Engine{}.WithDefaults() }

// WithDefaults returns e; if its losses are unknown, they are those that every known engine has.
func (e Engine) WithDefaults() Engine {
	if e.Losses == nil {
		e.Losses = []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling, tinker.PPO}
	}
	return e
}

// Validate reports a field with an unknown word, with code agl.CodeInvalid.
func (e Engine) Validate() error {
	switch {
	case !slices.Contains([]Encoding{"", Auto, JSON, Protobuf}, e.Encoding):
		return invalid("Encoding: %q is unknown; allowed are %q, %q, %q", e.Encoding, Auto, JSON, Protobuf)
	case !slices.Contains([]Order{Arrival, Strict, Ignored}, e.Order):
		return invalid("Order: %q is unknown; allowed are %q, %q", e.Order, Strict, Ignored)
	case !slices.Contains([]Normalization{NormalizationUnknown, Sum, DatumMean}, e.Normalization):
		return invalid("Normalization: %q is unknown; allowed are %q, %q", e.Normalization, Sum, DatumMean)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}

// SumsLosses reports whether a client can obtain the gradient of the plain sum of a batch's losses: the engine sums
// itself, or it averages in a way that scaled advantages make up for.
func (e Engine) SumsLosses() bool {
	return e.Normalization == Sum || e.Normalization == DatumMean && slices.Contains(e.Losses, tinker.ImportanceSampling)
}

// TrainableLosses returns the losses whose summed gradient a client can obtain. DRO is not linear in the advantages, so
// a client cannot make up for an engine that averages it.
func (e Engine) TrainableLosses() []tinker.LossName {
	return slices.DeleteFunc(slices.Clone(e.Losses), func(l tinker.LossName) bool {
		return l == tinker.DRO && e.Normalization == DatumMean
	})
}

// Seed returns a seed as the engine takes it, for several samples; sample i is drawn with seed+i. An engine of 31 bits
// fails all samples that it draws together with one whose seed is too large, so that a larger seed is replaced by 30
// bits made of all of its bits.
func (e Engine) Seed(seed uint64, samples int) uint64 {
	if e.WideSeeds || seed <= math.MaxInt32-uint64(max(samples, 1)) {
		return seed
	}
	// The finalizer of SplitMix64 (Steele et al. 2014).
	seed = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
	seed = (seed ^ seed>>27) * 0x94d049bb133111eb
	return (seed ^ seed>>31) >> 34
}

// Capabilities are what algorithms may ask of the engine through a client that makes up for its normalization.
func (e Engine) Capabilities(models []tinker.ModelSpec) tinker.Capabilities {
	return tinker.Capabilities{
		Models: slices.Clone(models), Losses: e.TrainableLosses(), ImmutableSnapshots: e.ImmutableSnapshots,
		SummedLoss: e.SumsLosses(), SingleGradient: e.Normalization == DatumMean, OptimizerOptional: e.OptimizerOptional, Deterministic: e.Deterministic,
	}
}

// FromWire is what a server says of its engine; nil is nothing.
func FromWire(said *wire.Engine) Engine {
	if said == nil {
		return Assumed()
	}
	e := Engine{
		SelfDescribing: true, Losses: said.Losses, ImmutableSnapshots: said.ImmutableSnapshots,
		OptimizerOptional: said.OptimizerOptional, Deterministic: said.Deterministic, Idempotent: said.Idempotent,
		LoadDiscardsGradient: said.LoadDiscardsGradient, WideSeeds: said.WideSeeds,
	}
	if said.SummedLoss {
		e.Normalization = Sum
	}
	return e.WithDefaults()
}

// ToWire is what a server says of an engine of this process, whose calls it runs in an order. [tinker.TrainingClient]
// demands that a load drops the gradient, and [tinker.SampleParams] seeds of 64 bits.
func ToWire(can tinker.Capabilities, order Order) *wire.Engine {
	return &wire.Engine{
		Losses: can.Losses, ImmutableSnapshots: can.ImmutableSnapshots, SummedLoss: can.SummedLoss,
		OptimizerOptional: can.OptimizerOptional, Deterministic: can.Deterministic,
		Idempotent: order != Ignored, LoadDiscardsGradient: true, WideSeeds: true,
	}
}
