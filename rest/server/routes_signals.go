package server

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/adapter/rows"
	"github.com/agl-go/agl/rest/internal/wire"
)

// signals serves what adapters make of the spans of a rollout's latest attempt: the rows of agl export, for programs
// in other languages.
type signals struct{ store agl.Store }

func (s signals) triplets(x *exchange) error { return signal(s, x, rows.Triplets) }

func (s signals) trajectories(x *exchange) error {
	return signal(s, x, func(o rows.Origin, spans agl.ShortSpans, source rows.Source) ([]rows.Trajectory, error) {
		made, _, err := rows.Trajectories(o, spans, source)
		return made, err
	})
}

// messageSpans is how many spans are read at once with their messages: a call of a long conversation may have megabytes.
const messageSpans = 50

func (s signals) messages(x *exchange) error {
	if _, err := s.source(x); err != nil {
		return err
	}
	r, err := s.get(x, x.request.PathValue(rolloutID))
	if err != nil {
		return err
	}
	if r.Attempt == nil {
		return sendRows(x, func(func(rows.Messages, error) bool) {})
	}
	query := agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, AttributeNames: rows.ShortConversationAttributes()}
	short, err := s.store.QuerySpans(x.context(), query)
	if err != nil {
		return err
	}
	query.AttributeNames = rows.ConversationAttributes()
	whole := agl.Pages(x.context(), agl.Paging{}, messageSpans, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
		query.Paging = p
		return s.store.QuerySpans(ctx, query)
	})
	return sendRows(x, rows.EachConversation(rows.OriginOf(r), short.Items, whole))
}

// signal answers with {"items": rows}.
func signal[T any](s signals, x *exchange, adapt func(rows.Origin, agl.ShortSpans, rows.Source) ([]T, error)) error {
	source, err := s.source(x)
	if err != nil {
		return err
	}
	r, spans, err := s.rollout(x, x.request.PathValue(rolloutID), source)
	if err != nil {
		return err
	}
	var items []T
	if r.Attempt != nil {
		if items, err = adapt(rows.OriginOf(r), spans, source); err != nil {
			return err
		}
	}
	return sendRows(x, func(yield func(T, error) bool) {
		for i := range items {
			if !yield(items[i], nil) {
				return
			}
			items[i] = *new(T) // it is sent
		}
	})
}

// sendRows sends rows as they are made.
func sendRows[T any](x *exchange, made iter.Seq2[T, error]) error {
	pull, stop := iter.Pull2(made)
	defer stop()
	next := func(int) ([]jsontext.Value, error) {
		row, err, more := pull()
		if err != nil || !more {
			return nil, err
		}
		doc, err := json.Marshal(row)
		return []jsontext.Value{doc}, err
	}
	return sendItems(x, next, appendDocument, func(dst []byte) []byte { return append(dst, "]}"...) })
}

func appendDocument(dst []byte, doc *jsontext.Value) []byte { return append(dst, *doc...) }

// source reads the parameters of a request for rows.
func (signals) source(x *exchange) (rows.Source, error) {
	var p wire.SignalParams
	if err := wire.Signal(&p).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return "", err
	}
	return oneOf("source", rows.Source(p.Source), rows.Proxy, rows.Tracer)
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

// get returns a rollout.
func (s signals) get(x *exchange, id string) (*agl.AttemptedRollout, error) {
	r, err := s.store.GetRollout(x.context(), agl.GetRolloutParams{RolloutID: id})
	if errors.Is(err, agl.ErrNotFound) {
		return nil, wire.ErrDetail(http.StatusNotFound, err.Error())
	}
	return &r, err
}

// rollout returns a rollout and the spans of its latest attempt, if it has one.
func (s signals) rollout(x *exchange, id string, source rows.Source) (*agl.AttemptedRollout, agl.ShortSpans, error) {
	r, err := s.get(x, id)
	if err != nil || r.Attempt == nil {
		return r, agl.ShortSpans{}, err
	}
	spans, err := agl.QuerySpansFor(x.context(), s.store, agl.QuerySpansParams{RolloutID: id, AttemptID: r.Attempt.AttemptID, Paging: agl.Paging{Limit: -1}}, source.Adapter())
	return r, spans, err
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
		r, spans, err := s.rollout(x, id, source)
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
