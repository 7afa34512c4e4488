package trainer_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/trainer"
)

// What somebody does at the proxy of a run is kept in its store, and so does the proxy know whose
// keys are revoked there.
func TestActsAtTheProxyOfARun(t *testing.T) {
	t.Parallel()
	model := proxytest.NewServer(func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Body: `{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`}
	})
	defer model.Close()
	px := trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Token: "s3cret", KeySecret: "of the run", Models: []proxy.Model{{Name: "m", BaseURL: model.BaseURL()}}}})
	s := newStore(t)
	var revoked atomic.Bool
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	agent := agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
		llm, err := task.LLM()
		if err != nil {
			return agl.Result{}, err
		}
		call := func() int {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, llm.Endpoint+"/chat/completions", strings.NewReader(`{"model":"m","messages":[]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+llm.APIKey.V)
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			return res.StatusCode
		}
		if got := call(); got != http.StatusOK {
			t.Errorf("with the key of the attempt: %d", got)
		}
		if _, err := access.NewKeys(s).RevokeAttempt(ctx, agl.Claim{RolloutID: task.Rollout.RolloutID}, "root"); err != nil {
			t.Error(err)
		}
		for ctx.Err() == nil {
			if call() == http.StatusUnauthorized {
				revoked.Store(true)
				break
			}
		}
		return agl.RewardResult(1), nil
	})
	algorithm := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		remote := proxy.Client{BaseURL: px.URL(), Token: "s3cret", HTTP: client}
		return errors.Join(remote.Pause(ctx, proxy.PauseHold), remote.Resume(ctx), onePass(ctx, in))
	})
	if err := fit(t.Context(), trainer.Config{Agent: agent, Algorithm: algorithm, Train: tasks(1), Store: s, Proxy: px}); err != nil {
		t.Fatal(err)
	}
	if !revoked.Load() {
		t.Error("the revoked key was let in until the end")
	}
	acts, _, err := access.NewAudit(s).List(t.Context(), 0, 0)
	if err != nil || len(acts) != 2 || acts[0].Path != "/admin/resume" || acts[1].Path != "/admin/pause" || acts[0].By != "root" || !strings.HasPrefix(acts[0].From, "127.0.0.1:") {
		t.Errorf("the acts are %+v, %v", acts, err)
	}
}
