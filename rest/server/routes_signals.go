package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/adapter/rows"
	"github.com/agl-go/agl/rest/internal/wire"
)

// signals serves what adapters make of the spans of a rollout's latest attempt: the rows of agl export, for programs
// in other languages.
type signals struct{ store agl.Store }

func (s signals) triplets(x *exchange) error {
	return signal(s, x, readFor, rows.Triplets)
}

func (s signals) trajectories(x *exchange) error {
	return signal(s, x, readFor, func(o rows.Origin, spans agl.ShortSpans, source rows.Source) ([]rows.Trajectory, error) {
		made, _, err := rows.Trajectories(o, spans, source)
		return made, err
	})
}

func (s signals) messages(x *exchange) error {
	return signal(s, x, readMessages, func(o rows.Origin, spans agl.ShortSpans, _ rows.Source) ([]rows.Messages, error) {
		return rows.Conversations(o, spans.Spans)
	})
}

// spansReader reads the spans from which rows are made.
type spansReader func(ctx context.Context, s agl.Store, p agl.QuerySpansParams, source rows.Source) (agl.ShortSpans, error)

func readFor(ctx context.Context, s agl.Store, p agl.QuerySpansParams, source rows.Source) (agl.ShortSpans, error) {
	return agl.QuerySpansFor(ctx, s, p, source.Adapter())
}

func readMessages(ctx context.Context, s agl.Store, p agl.QuerySpansParams, _ rows.Source) (agl.ShortSpans, error) {
	p.AttributeNames = append(adapter.Messages{}.Attributes(), adapter.RewardAttributes()...)
	page, err := s.QuerySpans(ctx, p)
	return agl.ShortSpans{Spans: page.Items}, err
}

// signal answers with {"items": rows}.
func signal[T any](s signals, x *exchange, read spansReader, adapt func(rows.Origin, agl.ShortSpans, rows.Source) ([]T, error)) error {
	var p wire.SignalParams
	if err := wire.Signal(&p).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	source, err := oneOf("source", rows.Source(p.Source), rows.Proxy, rows.Tracer)
	if err != nil {
		return err
	}
	r, spans, err := s.rollout(x, x.request.PathValue(rolloutID), read, source)
	if err != nil {
		return err
	}
	items := []T{}
	if r.Attempt != nil {
		if items, err = adapt(rows.OriginOf(r), spans, source); err != nil {
			return err
		}
	}
	doc, err := json.Marshal(struct {
		Items []T `json:"items"`
	}{items})
	if err != nil {
		return err
	}
	return x.send(http.StatusOK, doc)
}

// oneOf checks a parameter. The first of the two allowed values is the default.
func oneOf[T ~string](field string, got T, allowed ...T) (T, error) {
	if got == "" {
		return allowed[0], nil
	}
	if !slices.Contains(allowed, got) {
		return "", agl.Errorf(agl.CodeInvalid, "%s: got %.100q, must be %s or %s", field, got, allowed[0], allowed[1])
	}
	return got, nil
}

// rollout returns a rollout and the spans of its latest attempt, if it has one.
func (s signals) rollout(x *exchange, id string, read spansReader, source rows.Source) (*agl.AttemptedRollout, agl.ShortSpans, error) {
	r, err := s.store.GetRollout(x.context(), agl.GetRolloutParams{RolloutID: id})
	if errors.Is(err, agl.ErrNotFound) {
		return nil, agl.ShortSpans{}, wire.ErrDetail(http.StatusNotFound, err.Error())
	}
	if err != nil || r.Attempt == nil {
		return &r, agl.ShortSpans{}, err
	}
	spans, err := read(x.context(), s.store, agl.QuerySpansParams{RolloutID: id, AttemptID: r.Attempt.AttemptID, Paging: agl.Paging{Limit: -1}}, source)
	return &r, spans, err
}

// batch answers with the padded batch of several rollouts, as numpy.load reads it.
func (s signals) batch(x *exchange) error {
	var p wire.BatchParams
	if err := x.decode(wire.Batch(&p), bodyRequired); err != nil {
		return err
	}
	source, err := oneOf("source", rows.Source(p.Source), rows.Proxy, rows.Tracer)
	if err != nil {
		return err
	}
	level, err := oneOf("level", rows.Level(p.Level), rows.TrajectoryLevel, rows.TransitionLevel)
	if err != nil {
		return err
	}
	var sequences []adapter.Sequence
	for _, id := range p.RolloutIDs {
		r, spans, err := s.rollout(x, id, readFor, source)
		if err != nil {
			return err
		}
		if r.Attempt == nil {
			continue
		}
		made, err := rows.Sequences(r, spans, source, level)
		if err != nil {
			return agl.Errorf(agl.ErrorCode(err), "rollout %q: %w", id, err)
		}
		sequences = append(sequences, made...)
	}
	b, err := adapter.NewBatch(sequences, adapter.BatchConfig{PromptLength: p.PromptLength, ResponseLength: p.ResponseLength, Pad: int32(p.PadTokenID)})
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if err := rows.WriteNPZ(&file, b); err != nil {
		return err
	}
	x.Header()["Content-Type"] = []string{"application/zip"}
	return x.write(http.StatusOK, file.Bytes())
}
