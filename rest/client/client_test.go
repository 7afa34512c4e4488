package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestClientReachesStore(t *testing.T) {
	t.Parallel()
	store := &stubStore{
		enqueue: func(_ context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
			if p.IdempotencyKey == "" {
				t.Error("enqueue came without an idempotency key")
			}
			out := make([]agl.Rollout, len(p.Rollouts))
			for i, r := range p.Rollouts {
				out[i] = agl.Rollout{RolloutID: "ro-1", Input: r.Input, Status: agl.RolloutQueuing, Metadata: []byte("{}")}
			}
			return out, nil
		},
		get: func(context.Context, agl.GetRolloutParams) (agl.AttemptedRollout, error) {
			return agl.AttemptedRollout{}, agl.Errorf(agl.CodeNotFound, "Rollout nope not found")
		},
	}
	c := serve(t, store, 0)
	got, err := c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte(`{"a": 1.0}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || string(got[0].Input) != `{"a": 1.0}` {
		t.Errorf("got %+v", got)
	}
	if _, err := c.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: "nope"}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("error is %v, want not found", err)
	}
	if _, err := c.StartRollout(t.Context(), agl.StartRolloutParams{}); !errors.Is(err, agl.ErrUnimplemented) {
		t.Errorf("error is %v, want unimplemented", err)
	}
}

func TestClientTellsCause(t *testing.T) {
	t.Parallel()
	c := serve(t, &stubStore{}, 0)
	cause := errors.New("the lights went out")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, call := range map[string]func() error{
		"GetRollout":      func() error { _, err := c.GetRollout(ctx, agl.GetRolloutParams{RolloutID: "ro-1"}); return err },
		"DequeueRollouts": func() error { _, err := c.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1}); return err },
		"Events": func() (last error) {
			for _, err := range c.Events(ctx, agl.EventsParams{}) {
				last = err
			}
			return last
		},
	} {
		if err := call(); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("%s: error is %v, want the context's with its cause", name, err)
		}
	}
}

// TestRedirect pins that a redirect which turns a POST into a GET is told, and that others are followed.
func TestRedirect(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	for _, tc := range []struct {
		status    int
		loop      bool
		get, post error
	}{
		{http.StatusMovedPermanently, false, nil, agl.ErrInvalid},
		{http.StatusFound, false, nil, agl.ErrInvalid},
		{http.StatusPermanentRedirect, false, nil, nil},
		{http.StatusPermanentRedirect, true, agl.ErrInvalid, agl.ErrInvalid},
	} {
		c, err := client.New(client.Config{URL: "http://here", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if tc.loop || r.URL.Host == "here" {
				http.Redirect(w, r, "http://there"+r.URL.Path, tc.status)
			} else {
				api.ServeHTTP(w, r)
			}
			return w.Result(), nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Statistics(t.Context()); !errors.Is(err, tc.get) {
			t.Errorf("%+v: error of GET is %v", tc, err)
		}
		_, err = c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{}}})
		if !errors.Is(err, tc.post) || err != nil && !strings.Contains(err.Error(), `to "http://there/`) {
			t.Errorf("%+v: error of POST is %v", tc, err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, config := range []client.Config{
		{},
		{URL: "localhost:4747"},
		{URL: "ftp://h"},
		{URL: "ftp://s3cret@h"},
		{URL: "http://s3cret@h/v1/agl"},
		{URL: "http://h\x7f"},
		{URL: "http://h/v1/agl"},
		{URL: "http://h/p/a/v1/agl/"},
		{URL: "http://h", LongPoll: 61e9},
		{URL: "http://h", RequestTimeout: -1},
		{URL: "http://h", MaxBackoff: -1},
		{URL: "http://h", SpanBatch: -1},
		{URL: "http://h", SpanBatchBytes: -1},
	} {
		if _, err := client.New(config); !errors.Is(err, agl.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%+v: error is %v", config, err)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	if _, err := client.New(client.Config{URL: "http://127.0.0.1:1", Token: "s3cret\r\n"}); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "U+000D") {
		t.Errorf("a token that cannot be sent: %v", err)
	}
	web := httptest.NewServer(newServer(t, server.Config{Store: memorytest.Open(t), Token: "s3cret"}))
	t.Cleanup(web.Close)
	for _, tc := range []struct {
		name   string
		config client.Config
		want   error
	}{
		{"token", client.Config{URL: web.URL, Token: "s3cret"}, nil},
		{"in the URL", client.Config{URL: strings.Replace(web.URL, "://", "://agl:s3cret@", 1) + "/"}, nil},
		{"none", client.Config{URL: web.URL}, agl.ErrUnauthorized},
	} {
		c, err := client.New(tc.config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Statistics(t.Context()); !errors.Is(err, tc.want) {
			t.Errorf("%s: error is %v, want %v", tc.name, err, tc.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Statistics(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("%s: error after Close is %v", tc.name, err)
		}
	}
}

func TestIdempotencyConflict(t *testing.T) {
	t.Parallel()
	c := serve(t, memorytest.Open(t), 0)
	params := agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("1")}}, IdempotencyKey: "k"}
	if _, err := c.EnqueueRollouts(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	params.Rollouts[0].Input = []byte("2")
	if _, err := c.EnqueueRollouts(t.Context(), params); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("error is %v, want a conflict", err)
	}
}
