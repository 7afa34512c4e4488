package server

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/otlp"
	"github.com/agl-go/agl/rest/internal/wire"
)

// otlpReceiver receives spans and metrics by OTLP over HTTP.
type otlpReceiver struct {
	store     agl.Store
	runs      agl.Runs // nil if the store keeps none
	emptyGzip []byte   // an empty body, compressed
}

func newOTLPReceiver(store agl.Store) (*otlpReceiver, error) {
	empty, err := compress(nil)
	return &otlpReceiver{store, agl.RunsOf(store), empty}, err
}

// open reads the body of a request.
func (t *otlpReceiver) open(x *exchange) (otlp.Encoding, error) {
	media, _, _ := strings.Cut(x.request.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media)) // RFC 9110 §8.3.1
	encoding := otlp.Protobuf
	switch media {
	case otlp.ContentTypeProtobuf:
	case otlp.ContentTypeJSON:
		encoding = otlp.JSON
	default:
		return encoding, agl.Errorf(agl.CodeInvalid, "Unsupported Content-Type '%s', expected '%s'", media, otlp.ContentTypeProtobuf)
	}
	return encoding, x.readBody()
}

func (t *otlpReceiver) exportTraces(x *exchange) error {
	encoding, err := t.open(x)
	if err != nil {
		return t.fail(x, encoding, err)
	}
	batch, err := otlp.Decode(x.body, encoding)
	if err == nil {
		err = x.admitSpans(batch.Spans)
	}
	if err == nil {
		err = t.addBatch(x, &batch)
	}
	if err != nil {
		return t.fail(x, encoding, err)
	}
	if batch.Rejected > 0 {
		x.log.Warn("OTLP spans rejected", "rejected", batch.Rejected, "accepted", len(batch.Spans), "reason", batch.Reason)
	}
	return t.send(x, http.StatusOK, encoding, otlp.AppendResponse(x.out, encoding, batch.Rejected, batch.Reason))
}

// addBatch stores a batch. If the store rejects it because of a span, addBatch stores the spans of each attempt
// separately, so that only bad ones are lost.
func (t *otlpReceiver) addBatch(x *exchange, batch *otlp.Batch) error {
	if len(batch.Spans) == 0 {
		return nil
	}
	err := t.add(x, batch.Spans)
	if !refused(err) {
		return err
	}
	groups, order := groupByAttempt(batch.Spans)
	if len(order) == 1 {
		batch.Reject(len(batch.Spans), err.Error())
		return nil
	}
	for _, key := range order {
		switch err := t.add(x, groups[key]); {
		case refused(err):
			batch.Reject(len(groups[key]), err.Error())
		case err != nil:
			return err
		}
	}
	return nil
}

func (t *otlpReceiver) add(x *exchange, spans []agl.Span) error {
	byTime := sameMachine(x.request)
	if byTime && !slices.ContainsFunc(spans, func(s agl.Span) bool { return !s.EndTime.Valid }) {
		// An exporter groups the spans of a batch by their instrumentation.
		slices.SortStableFunc(spans, func(a, b agl.Span) int { return cmp.Compare(a.EndTime.V, b.EndTime.V) })
	}
	result, err := t.store.AddSpans(x.context(), agl.AddSpansParams{Spans: spans, IssueSequenceIDs: true, OrderByTime: byTime})
	if len(result.Cancelled) > 0 {
		x.tellCancelled()
	}
	return err
}

// sameMachine reports whether a request comes directly from this machine, so that its times are those of the store's
// clock: from a loopback address, or from the address at which it arrived.
func sameMachine(r *http.Request) bool {
	for _, relayed := range []string{"Forwarded", "X-Forwarded-For", "Via"} {
		if r.Header.Get(relayed) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	if from.Addr().Unmap().IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap() == from.Addr().Unmap()
}

// refused reports whether what was sent is at fault, not the store.
func refused(err error) bool {
	switch agl.ErrorCode(err) {
	case agl.CodeNotFound, agl.CodeInvalid, agl.CodeIllegalState, agl.CodeConflict:
		return true
	}
	return false
}

func groupByAttempt(spans []agl.Span) (groups map[agl.Claim][]agl.Span, order []agl.Claim) {
	groups = map[agl.Claim][]agl.Span{}
	for _, span := range spans {
		key := agl.Claim{RolloutID: span.RolloutID, AttemptID: span.AttemptID}
		if _, ok := groups[key]; !ok {
			order = append(order, key)
		}
		groups[key] = append(groups[key], span)
	}
	return groups, order
}

// fail answers an export with an error.
func (t *otlpReceiver) fail(x *exchange, encoding otlp.Encoding, err error) error {
	if decided, ok := errors.AsType[*wire.StatusError](err); ok {
		return t.sendStatus(x, decided.Status, encoding, wire.DecodeError("body", decided.Status, decided.Body).Error())
	}
	if spent, ok := errors.AsType[*access.BudgetError](err); ok {
		return t.sendStatus(x, http.StatusTooManyRequests, encoding, spent.Error())
	}
	if agl.IsContextError(err) {
		return err
	}
	status, _ := wire.StatusOf(agl.ErrorCode(err))
	message := err.Error()
	switch status {
	case http.StatusInternalServerError:
		x.log.Error("OTLP export failed", "error", err)
		message = "Internal server error"
	case http.StatusServiceUnavailable:
		backoff.SetRetryAfter(x.Header(), retryAfter)
	}
	return t.sendStatus(x, status, encoding, message)
}

func (t *otlpReceiver) sendStatus(x *exchange, status int, encoding otlp.Encoding, message string) error {
	return t.send(x, status, encoding, otlp.AppendStatus(nil, encoding, message))
}

// send answers in the encoding of the request, compressed if the client accepts that: Python's exporters expect it
// even for an empty answer.
func (t *otlpReceiver) send(x *exchange, status int, encoding otlp.Encoding, body []byte) error {
	h := x.Header()
	h["Content-Type"] = []string{encoding.ContentType()}
	if acceptsGzip(x.request.Header.Get("Accept-Encoding")) {
		compressed := t.emptyGzip
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
	return x.write(status, body)
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

// acceptsGzip reports whether a list of encodings names gzip, with any weight.
func acceptsGzip(accept string) bool {
	for token := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(token, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return true
		}
	}
	return false
}

// unsupported answers the protocol's other signals.
func (t *otlpReceiver) unsupported(x *exchange) error {
	x.WriteHeader(http.StatusNotImplemented)
	return nil
}
