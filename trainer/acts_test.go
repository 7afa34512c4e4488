package trainer_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer"
)

// What somebody does at the proxy of a run is kept in its store, and the proxy knows whose
// keys are valid and revoked there.
func TestActsAtTheProxyOfARun(t *testing.T) {
	t.Parallel()
	t.Run("the store in this process", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		testActs(t, s, s)
	})
	t.Run("a store elsewhere", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		api, err := server.New(server.Config{Store: s, Token: "s3cret", Keys: access.NewKeys(s), Audit: access.NewAudit(s)})
		if err != nil {
			t.Fatal(err)
		}
		listening := httptest.NewServer(api)
		t.Cleanup(listening.Close)
		c, err := client.New(client.Config{URL: listening.URL, Token: "s3cret"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		testActs(t, s, c)
	})
}

// testActs does a run that reaches the store s as reached.
func testActs(t *testing.T, s *store.Store, reached agl.Store) {
	t.Helper()
	model := proxytest.NewServer(func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Body: `{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`}
	})
	defer model.Close()
	px := trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Token: "s3cret", KeySecret: "secret of the run", Models: []proxy.Model{{Name: "m", BaseURL: model.BaseURL()}}}})
	keys := access.NewKeys(s)
	key := func(scope access.Scope) access.CreatedKey {
		made, err := keys.Create(t.Context(), access.NewKey{Name: "fleet", Scopes: scope})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	runs, trains := key(access.Runner), key(access.Train)
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
		if _, err := keys.RevokeAttempt(ctx, agl.Claim{RolloutID: task.Rollout.RolloutID}, "root"); err != nil {
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
		trainer, runner := remote, remote
		trainer.Token, runner.Token = trains.Text, runs.Text
		if err := runner.Pause(ctx, proxy.PauseHold); !errors.Is(err, agl.ErrUnauthorized) {
			t.Errorf("a runner pauses the proxy: %v", err)
		}
		return errors.Join(remote.Pause(ctx, proxy.PauseHold), trainer.Resume(ctx), runner.Flush(ctx, nil), onePass(ctx, in))
	})
	if err := fit(t.Context(), trainer.Config{Agent: agent, Algorithm: algorithm, Train: tasks(1), Store: reached, Proxy: px}); err != nil {
		t.Fatal(err)
	}
	if !revoked.Load() {
		t.Error("the revoked key was let in until the end")
	}
	acts, _, err := access.NewAudit(s).List(t.Context(), 0, 0)
	acts = slices.DeleteFunc(acts, func(a access.Act) bool { return !strings.HasPrefix(a.Path, "/admin/") })
	if err != nil || len(acts) != 2 || acts[0].Path != "/admin/resume" || acts[1].Path != "/admin/pause" || acts[0].By != trains.ID+" (fleet)" || acts[1].By != "root" || !strings.HasPrefix(acts[0].From, "127.0.0.1:") {
		t.Errorf("the acts are %+v, %v", acts, err)
	}
}
