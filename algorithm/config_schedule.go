package algorithm

import (
	"fmt"
	"math"
	"slices"

	"github.com/agl-go/agl"
)

// Schedule is a learning rate that rises linearly over Warmup steps to Peak, stays there for Hold steps, and then falls
// towards Floor, which it would reach in the step after the last. With Floor = Peak it is constant after the warm-up. The
// rate of a step depends only on the step and the number of steps, so that a resumed run follows the same curve.
type Schedule struct {
	Peak   float64
	Warmup int
	Hold   int
	Floor  float64
	// Decay is the shape of the fall; empty means Cosine.
	Decay Decay
}

// Decay is the shape in which a learning rate falls.
type Decay string

// The shapes.
const (
	// Cosine falls along a half cosine (Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5, one cycle).
	Cosine Decay = "cosine"
	// Linear falls along a straight line.
	Linear Decay = "linear"
)

// Decays returns all shapes.
func Decays() []Decay { return []Decay{Cosine, Linear} }

// String identifies the schedule in checkpoints.
func (s Schedule) String() string {
	text := fmt.Sprintf("{Peak:%v Warmup:%d Hold:%d Floor:%v", s.Peak, s.Warmup, s.Hold, s.Floor)
	if s.Decay == Linear { // checkpoints from before Decay existed do not name it
		text += " Decay:linear"
	}
	return text + "}"
}

// Rate returns the learning rate of a step in [0, steps).
func (s Schedule) Rate(step, steps int) float64 {
	if step < s.Warmup {
		return s.Peak * float64(step+1) / float64(s.Warmup)
	}
	begin := float64(s.Warmup) + float64(s.Hold) // the sum of integers could overflow
	progress := max(float64(step)-begin, 0) / max(float64(steps)-begin, 1)
	if s.Decay == Linear {
		return s.Floor + (s.Peak-s.Floor)*max(1-progress, 0)
	}
	return s.Floor + (s.Peak-s.Floor)*(1+math.Cos(math.Pi*progress))/2
}

// Validate names the first field that is out of range.
func (s Schedule) Validate() error {
	switch {
	case !(s.Peak > 0) || math.IsInf(s.Peak, 0):
		return agl.Errorf(agl.CodeInvalid, "Schedule.Peak is %v, must be a positive number", s.Peak)
	case !(s.Floor >= 0 && s.Floor <= s.Peak):
		return agl.Errorf(agl.CodeInvalid, "Schedule.Floor is %v, must be between 0 and Peak (%v)", s.Floor, s.Peak)
	case s.Warmup < 0:
		return agl.Errorf(agl.CodeInvalid, "Schedule.Warmup is %d, must not be negative", s.Warmup)
	case s.Decay != "" && !slices.Contains(Decays(), s.Decay):
		return agl.Errorf(agl.CodeInvalid, "Schedule.Decay is %q; allowed are %q", s.Decay, Decays())
	case s.Hold < 0:
		return agl.Errorf(agl.CodeInvalid, "Schedule.Hold is %d, must not be negative", s.Hold)
	}
	return nil
}

// Constant reports whether the rate is the same for any number of steps.
func (s Schedule) Constant() bool { return s.Floor == s.Peak }
