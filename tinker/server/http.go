package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

func (s *Server) routes() {
	route(s, http.MethodGet, wire.Healthz, plain(s.health))
	route(s, http.MethodGet, wire.ServerCapabilities, plain(s.capabilities))
	route(s, http.MethodPost, wire.ClientConfig, plain(s.clientConfig))
	route(s, http.MethodPost, wire.CreateSession, plain(s.createSession))
	route(s, http.MethodPost, wire.SessionHeartbeat, plain(s.heartbeat))
	route(s, http.MethodPost, wire.CreateModel, plain(s.createModel))
	route(s, http.MethodPost, wire.GetInfo, plain(s.getInfo))
	route(s, http.MethodPost, wire.UnloadModel, plain(s.unloadModel))
	route(s, http.MethodPost, wire.WeightsInfo, plain(s.weightsInfo))
	route(s, http.MethodPost, wire.CreateSamplingSession, plain(s.createSamplingSession))
	route(s, http.MethodPost, wire.OptimStep, s.optimStep)
	route(s, http.MethodPost, wire.SaveWeights, s.saveWeights)
	route(s, http.MethodPost, wire.SaveWeightsForSampler, s.saveWeightsForSampler)
	route(s, http.MethodPost, wire.LoadWeights, s.loadWeights)
	route(s, http.MethodPost, wire.Sample, s.sample)
	s.mux.HandleFunc("POST "+wire.Prefix+wire.ForwardBackward, s.forward)
	s.mux.HandleFunc("POST "+wire.Prefix+wire.Forward, s.forward)
	s.mux.HandleFunc("POST "+wire.Prefix+wire.RetrieveFuture, s.retrieve)
	s.mux.HandleFunc("DELETE "+wire.Prefix+wire.CheckpointPath("{model}", "{kind}", "{name}"), s.deleteWeights)
	s.mux.HandleFunc("GET "+wire.Prefix+wire.SamplerPath("{id}"), func(w http.ResponseWriter, r *http.Request) {
		out, err := s.getSampler(r.PathValue("id"))
		s.answer(w, out, err)
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, agl.Errorf(agl.CodeNotFound, "%s %s is unknown", r.Method, r.URL.Path))
	})
}

// plain is a call that does not need the body as it came.
func plain[T any](do func(ctx context.Context, message T) (any, error)) func(context.Context, T, []byte) (any, error) {
	return func(ctx context.Context, message T, _ []byte) (any, error) { return do(ctx, message) }
}

// route serves a call whose request and answer are JSON.
func route[T any](s *Server, method, path string, do func(ctx context.Context, message T, body []byte) (any, error)) {
	s.mux.HandleFunc(method+" "+wire.Prefix+path, func(w http.ResponseWriter, r *http.Request) {
		var message T
		body, err := s.read(r)
		if err == nil && method != http.MethodGet {
			err = decode(body, &message)
		}
		var out any
		if err == nil {
			out, err = do(r.Context(), message, body)
		}
		if sub, ok := out.(submitted); ok {
			out = s.withResult(r, sub)
		}
		s.answer(w, out, err)
	})
}

func decode(body []byte, out any) error {
	if err := json.Unmarshal(body, out); err != nil {
		return invalid("body: %w", err)
	}
	return nil
}

// read reads a body, which may be compressed by zstd.
func (s *Server) read(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
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
		d, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, invalid("body: %w", err)
		}
		defer d.Close()
		body, err = io.ReadAll(io.LimitReader(d, s.cfg.MaxBodyBytes+1))
		switch {
		case err != nil:
			return nil, invalid("body: %w", err)
		case int64(len(body)) > s.cfg.MaxBodyBytes:
			return nil, invalid("body: is larger than %d bytes when decompressed", s.cfg.MaxBodyBytes)
		}
		return body, nil
	default:
		return nil, invalid("Content-Encoding: %q is not supported; allowed is zstd", encoding)
	}
}

func (s *Server) deleteWeights(w http.ResponseWriter, r *http.Request) {
	path := tinker.Path{Model: r.PathValue("model"), Kind: tinker.WeightsKind(r.PathValue("kind")), Name: r.PathValue("name")}
	s.answer(w, struct{}{}, s.deletePath(r.Context(), path))
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
	status := status(code)
	if code == agl.CodeInvalid && errors.Is(err, os.ErrDeadlineExceeded) { // the body did not arrive in time
		status = http.StatusRequestTimeout
	}
	s.reply(w, status, wire.Detail{Detail: err.Error(), Code: string(code)})
}

func status(code agl.Code) int {
	switch code {
	case agl.CodeInvalid:
		return http.StatusBadRequest
	case agl.CodeUnauthorized:
		return http.StatusUnauthorized
	case agl.CodeNotFound:
		return http.StatusNotFound
	case agl.CodeUnimplemented:
		return http.StatusMethodNotAllowed
	case agl.CodeConflict, agl.CodeIllegalState:
		return http.StatusConflict
	case agl.CodeEvicted:
		return http.StatusGone
	case agl.CodeExhausted:
		return http.StatusTooManyRequests
	case agl.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func (s *Server) reply(w http.ResponseWriter, status int, message any) {
	body, err := json.Marshal(message)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"detail":"the answer could not be written"}`)
	}
	s.write(w, status, wire.JSONType, body)
}

func (s *Server) write(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil { //nolint:gosec // JSON or protobuf, and it says so
		s.cfg.Logger.Debug("tinker: an answer was not delivered", slog.Any("error", err))
	}
}
