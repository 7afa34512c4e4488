package chat

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkCompletion measures a call of an agent in training, without sampling and connection.
func BenchmarkCompletion(b *testing.B) {
	srv := newTestServer(b, &script{replies: []string{"call 12*7"}})
	body := "{" + question + `,"temperature":1,"max_tokens":16,"logprobs":true,"return_token_ids":true}`
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
		if w.Code != http.StatusOK {
			b.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
}
