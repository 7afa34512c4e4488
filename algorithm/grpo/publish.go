package grpo

import (
	"context"
	"fmt"

	"github.com/agl-go/agl/algorithm"
)

// Publication is a snapshot of the model that is to be served.
type Publication = algorithm.Publication

// Publisher swaps the model that agents call.
type Publisher = algorithm.Publisher

// publish makes the current weights the model that agents call.
func (r *run) publish(ctx context.Context, step int) error {
	p, err := r.serving.Publish(ctx, fmt.Sprintf("step-%08d", step))
	if err != nil {
		return err
	}
	r.state.ResourcesID = p.Version
	return nil
}
