package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
)

// One rollout, from the queue to its end, in a store behind HTTP. A real runner and
// a real algorithm are two processes with a client each.
func Example() {
	ctx := context.Background()
	url, stop := startServer(ctx)
	defer stop()

	c, err := client.New(client.Config{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if err := oneRollout(ctx, c); err != nil {
		fmt.Println(err)
	}
	_, err = c.GetRollout(ctx, agl.GetRolloutParams{RolloutID: "ro-nope"})
	fmt.Println(errors.Is(err, agl.ErrNotFound), err)
	// Output:
	// claimed {"question":"what is 12 + 30?"}
	// succeeded
	// true Rollout ro-nope not found
}

func oneRollout(ctx context.Context, s agl.Store) error {
	queued, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{
		Rollouts: []agl.EnqueueRollout{{Input: []byte(`{"question":"what is 12 + 30?"}`)}},
	})
	if err != nil {
		return err
	}

	// The runner waits for work and reports.
	claimed, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w-1"), Wait: time.Minute})
	if err != nil {
		return err
	}
	for _, r := range claimed.Rollouts {
		fmt.Println("claimed", r.Input)
		done := agl.AttemptSucceeded
		if _, err := s.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &done}); err != nil {
			return err
		}
	}

	// The algorithm waits for the end.
	finished, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{queued[0].RolloutID}})
	if err != nil {
		return err
	}
	fmt.Println(finished[0].Status)
	return nil
}

// startServer serves a store in memory; see the package rest/server.
func startServer(ctx context.Context) (url string, stop func()) {
	engine, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		panic(err)
	}
	api, err := server.New(server.Config{Store: engine})
	if err != nil {
		panic(err)
	}
	web := httptest.NewServer(api)
	return web.URL, func() {
		web.Close()
		if err := engine.Close(ctx); err != nil {
			panic(err)
		}
	}
}
