package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// ListActs returns what callers have done with the scopes train and admin, the newest first:
// at most limit of them, after offset.
func (c *Client) ListActs(ctx context.Context, limit, offset int) ([]access.Act, error) {
	answer, err := call[struct {
		Items []access.Act `json:"items"`
	}](ctx, c, operation{name: "ListActs", method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d&offset=%d", wire.Audit, limit, offset)})
	return answer.Items, err
}
