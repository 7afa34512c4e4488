package rest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/otlp"
)

// traces is the OTLP/HTTP endpoint for spans.
func (s *Server) traces(c *call) error {
	media, _, _ := strings.Cut(c.request.Header.Get("Content-Type"), ";")
	media = strings.TrimSpace(media)
	encoding := otlp.Protobuf
	switch media {
	case otlp.ContentTypeProtobuf:
	case otlp.ContentTypeJSON:
		encoding = otlp.JSON
	default:
		message := fmt.Sprintf("Unsupported Content-Type '%s', expected '%s'", media, otlp.ContentTypeProtobuf)
		return c.sendOTLP(http.StatusBadRequest, encoding, otlp.AppendStatus(nil, encoding, message))
	}
	if err := c.readBody(); err != nil {
		if decided, ok := errors.AsType[*httpError](err); ok {
			return c.sendOTLP(decided.status, encoding, otlp.AppendStatus(nil, encoding, wireError("body", decided.status, decided.body).Error()))
		}
		return err
	}
	batch, err := otlp.Decode(c.body, encoding)
	if err == nil {
		err = c.allowed(batch.Spans)
	}
	if err == nil {
		err = s.storeBatch(c, &batch)
	}
	if err != nil {
		return c.failOTLP(encoding, err)
	}
	if batch.Rejected > 0 {
		s.config.Logger.Warn("OTLP spans rejected", "rejected", batch.Rejected, "accepted", len(batch.Spans), "reason", batch.Reason)
	}
	return c.sendOTLP(http.StatusOK, encoding, otlp.AppendResponse(c.out, encoding, batch.Rejected, batch.Reason))
}

// storeBatch stores a batch. If the store refuses it for a span of it, it
// stores each attempt's spans by themselves, so that only the bad ones are lost.
func (s *Server) storeBatch(c *call, batch *otlp.Batch) error {
	if len(batch.Spans) == 0 {
		return nil
	}
	err := s.storeSpans(c, batch.Spans)
	if !refusedForSpan(err) {
		return err
	}
	groups, order := groupByAttempt(batch.Spans)
	if len(order) == 1 {
		batch.Reject(len(batch.Spans), err.Error())
		return nil
	}
	for _, key := range order {
		switch err := s.storeSpans(c, groups[key]); {
		case refusedForSpan(err):
			batch.Reject(len(groups[key]), err.Error())
		case err != nil:
			return err
		}
	}
	return nil
}

// refusedForSpan reports whether the store found fault with a span, not with
// itself.
func refusedForSpan(err error) bool {
	switch agl.ErrorCode(err) {
	case agl.CodeNotFound, agl.CodeInvalid, agl.CodeIllegalState, agl.CodeConflict:
		return true
	}
	return false
}

func groupByAttempt(spans []agl.Span) (groups map[[2]string][]agl.Span, order [][2]string) {
	groups = map[[2]string][]agl.Span{}
	for _, span := range spans {
		key := [2]string{span.RolloutID, span.AttemptID}
		if _, ok := groups[key]; !ok {
			order = append(order, key)
		}
		groups[key] = append(groups[key], span)
	}
	return groups, order
}

func (s *Server) storeSpans(c *call, spans []agl.Span) error {
	result, err := s.store.AddSpans(c.ctx, agl.AddSpansParams{Spans: spans, IssueSequenceIDs: true})
	if len(result.Cancelled) > 0 {
		c.markCancelled()
	}
	return err
}

// failOTLP answers a failed export as the protocol asks: with a Status.
func (c *call) failOTLP(encoding otlp.Encoding, err error) error {
	if agl.IsContextError(err) {
		return err
	}
	status, _ := storeStatus(agl.ErrorCode(err))
	message := err.Error()
	switch status {
	case http.StatusInternalServerError:
		c.server.config.Logger.Error("OTLP export failed", "error", err)
		message = "Internal server error"
	case http.StatusServiceUnavailable:
		backoff.SetRetryAfter(c.Header(), time.Second)
	}
	return c.sendOTLP(status, encoding, otlp.AppendStatus(nil, encoding, message))
}

// sendOTLP answers in the encoding of the request, compressed if the client
// takes that: Python's exporters expect it even of an empty answer.
func (c *call) sendOTLP(status int, encoding otlp.Encoding, body []byte) error {
	h := c.Header()
	h["Content-Type"] = []string{encoding.ContentType()}
	if acceptsGzip(c.request.Header.Get("Accept-Encoding")) {
		compressed := c.server.emptyGzip
		if len(body) > 0 {
			var err error
			if compressed, err = compress(body); err != nil {
				return err
			}
		}
		body = compressed
		h["Content-Encoding"] = []string{"gzip"}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.WriteHeader(status)
	if _, err := c.Write(body); err != nil {
		return &writeError{err}
	}
	return nil
}

func compress(body []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return out.Bytes(), nil
}

// acceptsGzip reports whether the list names gzip, whatever its weight.
func acceptsGzip(accept string) bool {
	for token := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(token, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return true
		}
	}
	return false
}

// unsupportedSignal answers the protocol's other signals.
func (s *Server) unsupportedSignal(c *call) error {
	c.WriteHeader(http.StatusNotImplemented)
	return nil
}
