package chat

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Transport is an [http.RoundTripper] that calls a handler of this process, so that a proxy reaches a [Server] beside it
// without a socket. It returns a response when that is complete. It is safe for concurrent use if the handler is.
type Transport struct {
	Handler http.Handler
}

// RoundTrip implements [http.RoundTripper]. It turns a panic of the handler into an error.
func (t Transport) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	body := req.Body
	if body == nil {
		body = http.NoBody
	}
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, fmt.Errorf("the handler of %s panicked: %v", req.URL.Path, p)
		}
		if cerr := body.Close(); err == nil && cerr != nil {
			resp, err = nil, cerr
		}
	}()
	ctx := req.Context()
	served := req.WithContext(ctx)
	served.Body, served.RequestURI = body, req.URL.RequestURI()
	if served.Host == "" {
		served.Host = req.URL.Host
	}
	w := recorder{header: http.Header{}}
	t.Handler.ServeHTTP(&w, served)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		Body:          io.NopCloser(bytes.NewReader(w.body.Bytes())),
		ContentLength: int64(w.body.Len()),
		Request:       req,
	}, nil
}

// recorder is an [http.ResponseWriter] that keeps what a handler writes.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements [http.Flusher]. Nobody reads a part of the response.
func (w *recorder) Flush() {}
