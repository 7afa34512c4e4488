package httpserver

import "net/http"

// StatusWriter records the status of an answer.
type StatusWriter struct {
	http.ResponseWriter

	Status int // 0 until the header is written
}

// Unwrap lets http.ResponseController reach the connection.
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *StatusWriter) WriteHeader(status int) {
	if w.Status == 0 {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}
