package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/tinker/wire"
)

func decode(body []byte, out any) error {
	if err := wire.DecodeJSON(body, out); err != nil {
		return invalid("body: %w", err)
	}
	return nil
}

// maxWindow bounds what a compressed body may have the decoder keep, in bytes.
const maxWindow = 32 << 20

// read reads a body, which may be compressed with zstd.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := httpserver.ReadBody(w, r, s.cfg.MaxBodyBytes)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, invalid("body: is larger than %d bytes", s.cfg.MaxBodyBytes)
	}
	if err != nil {
		return nil, invalid("body: %w", err)
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return body, nil
	case "zstd":
		return s.inflate(body)
	default:
		return nil, invalid("Content-Encoding: %q is not supported; allowed is zstd", encoding)
	}
}

// inflate decompresses a body. It counts the bytes first, so that a bomb takes no memory.
func (s *Server) inflate(body []byte) ([]byte, error) {
	s.inflating <- struct{}{}
	defer func() { <-s.inflating }()
	d, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, invalid("body: %w", err)
	}
	defer d.Close()
	size, err := io.Copy(io.Discard, io.LimitReader(d, s.cfg.MaxBodyBytes+1))
	if err != nil {
		return nil, invalid("body: %w", err)
	}
	if size > s.cfg.MaxBodyBytes {
		return nil, invalid("body: is larger than %d bytes when decompressed", s.cfg.MaxBodyBytes)
	}
	if err := d.Reset(bytes.NewReader(body)); err != nil {
		return nil, invalid("body: %w", err)
	}
	out := make([]byte, size)
	if _, err := io.ReadFull(d, out); err != nil {
		return nil, invalid("body: %w", err)
	}
	return out, nil
}

func (s *Server) answer(w http.ResponseWriter, out any, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	s.reply(w, http.StatusOK, out)
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	code := agl.ErrorCode(err)
	status := wire.Status(code)
	if _, ok := errors.AsType[*access.ForbiddenError](err); ok {
		code, status = agl.CodeUnauthorized, http.StatusForbidden
	}
	if _, ok := errors.AsType[*access.OpenError](err); ok {
		code, status = agl.CodeExhausted, http.StatusTooManyRequests
		backoff.SetRetryAfter(w.Header(), time.Second)
	}
	if throttled, ok := errors.AsType[*access.ThrottledError](err); ok {
		code, status = agl.CodeExhausted, http.StatusTooManyRequests
		backoff.SetRetryAfter(w.Header(), throttled.Wait)
	}
	if code == agl.CodeInvalid && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, httpserver.ErrBusy)) { // the body did not arrive
		status, _ = httpserver.BodyStatus(err)
	}
	s.reply(w, status, wire.Detail{Detail: err.Error(), Code: string(code)})
}

func (s *Server) reply(w http.ResponseWriter, status int, message any) {
	// Paths and names in errors may not be valid UTF-8.
	body, err := json.Marshal(message, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"detail":"the answer could not be encoded"}`)
	}
	s.write(w, status, wire.JSONType, body)
}

func (s *Server) write(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil { //nolint:gosec,nolintlint // JSON or protobuf, and it says so
		s.cfg.Logger.Debug("tinker: an answer was not delivered", slog.Any("error", err))
	}
}
