package algorithm

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// CheckEngine asks an engine what it can do. One that lacks one of the losses is
// agl.ErrUnimplemented; what else a run on it should know is logged.
func CheckEngine(ctx context.Context, service tinker.Service, losses []tinker.LossName, initialWeights string, logger *slog.Logger) (tinker.Capabilities, error) {
	can, err := service.Capabilities(ctx)
	if err != nil {
		return tinker.Capabilities{}, fmt.Errorf("ask the engine what it can do: %w", err)
	}
	for _, loss := range losses {
		if !slices.Contains(can.Losses, loss) {
			return tinker.Capabilities{}, agl.Errorf(agl.CodeUnimplemented, "the engine has no loss %q, only %q", loss, can.Losses)
		}
	}
	if !can.SummedLoss {
		logger.WarnContext(ctx, "the engine normalises losses in a way of its own, so that a learning rate may mean another than elsewhere")
	}
	if initialWeights != "" && !can.OptimizerOptional {
		logger.WarnContext(ctx, "the engine restores the optimizer's state together with the initial weights")
	}
	return can, nil
}
