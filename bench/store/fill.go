package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
)

// filling is the content of a database before it is measured.
type filling struct {
	spans int
	deep  int // the spans of one long rollout; the other rollouts are like those of the load
	// make makes the n-th span of an attempt.
	make func(rollout, attempt string, n int) agl.Span
}

const (
	fillBatch = 256 // rollouts at once
	fillers   = 4
)

// fill stores finished rollouts with spans. It returns the id of the deep one.
func fill(ctx context.Context, url string, f filling) (deep string, err error) {
	client, err := client.New(client.Config{URL: url, SpanBatch: 2048, SpanBatchBytes: 8 << 20})
	if err != nil {
		return "", err
	}
	defer client.Close()
	if f.deep > 0 {
		ids, err := fillRollouts(ctx, client, 1, f.deep, f.make)
		if err != nil {
			return "", err
		}
		deep = ids[0]
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	for left := (f.spans - f.deep) / spansPerRollout; left > 0 && inner.Err() == nil; left -= fillBatch {
		group.Go(func() error {
			_, err := fillRollouts(inner, client, min(left, fillBatch), spansPerRollout, f.make)
			return err
		})
	}
	return deep, errors.Join(group.Wait(), ctx.Err())
}

// fillRollouts makes n rollouts with so many spans each and finishes them.
func fillRollouts(ctx context.Context, s agl.Store, n, spans int, makeSpan func(rollout, attempt string, n int) agl.Span) ([]string, error) {
	if _, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: tasks(n)}); err != nil {
		return nil, err
	}
	// All rollouts are alike, so other fillers may get those of this call.
	taken, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: n})
	if err != nil {
		return nil, err
	}
	var ids []string
	var batch []agl.Span
	for _, r := range taken.Rollouts {
		ids = append(ids, r.RolloutID)
		for i := range spans {
			batch = append(batch, makeSpan(r.RolloutID, r.Attempt.AttemptID, i))
		}
	}
	if _, err := s.AddSpans(ctx, agl.AddSpansParams{Spans: batch, IssueSequenceIDs: true}); err != nil {
		return nil, err
	}
	var group errgroup.Group
	for _, r := range taken.Rollouts {
		group.Go(func() error {
			_, err := s.UpdateAttempt(ctx, agl.UpdateAttemptParams{
				RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: new(agl.AttemptSucceeded),
			})
			return err
		})
	}
	return ids, group.Wait()
}

// filledDatabase makes a SQLite database, once, and returns the id of its deep rollout.
func filledDatabase(ctx context.Context, opt options, path string, f filling) (deep string, err error) {
	note := path + ".deep"
	if text, err := os.ReadFile(note); err == nil {
		return string(text), nil
	}
	began := time.Now()
	srv, err := startAgl(ctx, opt, "--db", "sqlite:"+path, "--sync", "normal")
	if err != nil {
		return "", err
	}
	deep, err = fill(ctx, srv.urls[0], f)
	srv.stop()
	if err != nil {
		return "", fmt.Errorf("fill %s: %w", path, err)
	}
	fmt.Fprintf(os.Stderr, "filled %s with %d spans in %s\n", filepath.Base(path), f.spans, time.Since(began).Round(time.Second))
	return deep, os.WriteFile(note, []byte(deep), 0o600)
}

// largeDatabase makes the database with options.Spans spans unless it exists. Its deep rollout has an eighth of them, so that both its spans
// and the list of rollouts have pages at an offset of a tenth of all spans.
func largeDatabase(ctx context.Context, opt options, dir string) (path, deep string, err error) {
	path = filepath.Join(dir, "large.db")
	deep, err = filledDatabase(ctx, opt, path, filling{spans: opt.Spans, deep: opt.Spans / 8, make: benchSpan})
	return path, deep, err
}

// prose makes spans whose text compresses like a model's, not like padding.
func prose() func(rollout, attempt string, n int) agl.Span {
	random := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 4096)
	for i := range words {
		word := make([]byte, 2+random.IntN(9))
		for j := range word {
			word[j] = byte('a' + random.IntN(26))
		}
		words[i] = string(word)
	}
	var mu sync.Mutex
	return func(rollout, attempt string, n int) agl.Span {
		s := benchSpan(rollout, attempt, n)
		var text strings.Builder
		mu.Lock()
		for text.Len() < spanPadding {
			text.WriteString(words[random.IntN(len(words))])
			text.WriteByte(' ')
		}
		mu.Unlock()
		s.Attributes = agl.Attributes(strings.Replace(string(s.Attributes), padding, text.String(), 1))
		return s
	}
}
