package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// ListActs returns acts with the scopes train and admin, the newest first: at most limit of them, after offset.
func (c *Client) ListActs(ctx context.Context, limit, offset int) ([]access.Act, error) {
	answer, err := call[struct {
		Items []access.Act `json:"items"`
	}](ctx, c, operation{name: "ListActs", method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d&offset=%d", wire.Audit, limit, offset)})
	return answer.Items, err
}

// RecordAct reports to the store what somebody did at another server, such as a proxy. key is that caller's key, by
// which the store identifies the caller; "" is the client's own key.
func (c *Client) RecordAct(ctx context.Context, key string, act access.Act) error {
	body, err := json.Marshal(&wire.Act{From: act.From, Method: act.Method, Path: strings.ToValidUTF8(act.Path, "\uFFFD"), Status: act.Status})
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "RecordAct: %w", err)
	}
	reporter := c
	if key != "" {
		reporter = c.as(key)
	}
	return reporter.do(ctx, operation{name: "RecordAct", method: http.MethodPost, path: wire.Audit, body: body, unsent: true}, nil)
}
