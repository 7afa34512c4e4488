package flags

import "github.com/agl-go/agl/access"

// Limits has the flags of a budget.
type Limits struct {
	MaxTokens   Count   `placeholder:"N" help:"Most tokens of prompts and replies that may be used at models. Default: no limit, as of the others."`
	MaxUSD      Dollars `name:"max-usd" placeholder:"DOLLARS" help:"Most dollars that may be spent at models, by their prices in the configuration of the proxy."`
	MaxCalls    Count   `placeholder:"N" help:"Most calls of models that may run at once."`
	MaxRollouts Count   `placeholder:"N" help:"Most rollouts that may be enqueued or started."`
	MaxBytes    Size    `placeholder:"SIZE" help:"Most bytes (10GB) that may be sent to the store."`
}

// Limits are the limits of the flags.
func (f *Limits) Limits() access.Limits {
	return access.Limits{MaxTokens: int64(f.MaxTokens), MaxUSD: float64(f.MaxUSD), MaxCalls: int64(f.MaxCalls), MaxRollouts: int64(f.MaxRollouts), MaxBytes: int64(f.MaxBytes)}
}
