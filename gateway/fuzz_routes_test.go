package gateway_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/rawjson"
)

// FuzzRoutes sends any body and any query to any route, and has the model's server answer with anything.
func FuzzRoutes(f *testing.F) {
	type reply struct{ kind, body string }
	var next atomic.Pointer[reply] // to the call that is under way
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the reply is the same for a request that breaks off
		w.Header().Set("Content-Type", next.Load().kind)
		_, _ = io.WriteString(w, next.Load().body)
	}))
	f.Cleanup(backend.Close)
	c := open(f, gateway.Config{Translate: true})
	c.must("POST", "/api/models", fmt.Sprintf(`[{"model":%q,"endpoint":%q}]`, gateway.DefaultModel, backend.URL+"/v1"))
	routes := []string{
		"GET /api/rollouts", "POST /api/rollouts", "GET /api/rollouts/terminal", "POST /api/rollouts/status", "GET /api/rollouts/ID", "PATCH /api/rollouts/ID",
		"GET /api/rollouts/ID/key", "POST /api/rollouts/ID/cancel", "GET /api/rollouts/ID/events", "POST /api/rollouts/ID/attempt/0/events", "DELETE /api/rollouts/ID",
		"POST /proxy/rollout/ID/attempt/0/mode/train/openai/v1/chat/completions", "POST /proxy/rollout/ID/attempt/0/mode/train/openai/v1/responses",
		"POST /proxy/rollout/ID/attempt/0/mode/train/anthropic/v1/messages",
	}
	for i := range routes {
		for _, body := range []string{
			"", "null", "[]", "{}", "\xb0", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","stream":true,"messages":[{"role":"user","content":"\xff"}]}`,
			`[{"rollout_id":"x","input":{"a":"\xff"}}]`, `{"rollouts":[{"id":"x","task":1}]}`, `{"event_type":"model_request","data":{"a":1}}`, `{"status":"succeeded","reward":1e99}`,
		} {
			for _, answer := range []string{
				`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"yo"},"finish_reason":"stop","token_ids":[1,2]}],"prompt_token_ids":[3],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
				"\xff", `{"choices":[null]}`, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n",
			} {
				f.Add(uint8(i), body, "limit=1&format=triplet", strings.HasPrefix(answer, "data:"), answer)
			}
		}
	}
	n := 0
	f.Fuzz(func(t *testing.T, route uint8, body, query string, stream bool, answer string) {
		if strings.Contains(query, "wait") {
			return // would block
		}
		n++
		c := &client{t, c.handler}
		id := hex.EncodeToString([]byte(fmt.Sprint(n)))
		c.create(id)
		method, path, _ := strings.Cut(routes[int(route)%len(routes)], " ")
		next.Store(&reply{map[bool]string{false: "application/json", true: "text/event-stream"}[stream], answer})
		r := httptest.NewRequestWithContext(t.Context(), method, strings.ReplaceAll(path, "ID", id), strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if e := recover(); e != nil && e != http.ErrAbortHandler { //nolint:errorlint // the very value
					panic(e)
				}
			}()
			c.handler.ServeHTTP(w, r)
		}()
		own := !strings.HasPrefix(path, "/proxy")
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		if got := w.Body.Bytes(); (own || w.Code >= 300) && len(got) > 0 && (!utf8.Valid(got) || !jsontext.Value(got).IsValid(rawjson.Options())) {
			t.Errorf("%s %s %q: %d, which is not JSON: %q", method, path, body, w.Code, got)
		}
		var list []jsontext.Value
		if w := c.send("GET", "/api/rollouts/"+id+"/events", ""); w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &list, rawjson.Options()); err != nil || !utf8.Valid(w.Body.Bytes()) {
				t.Errorf("events after %s %q %q: %v %q", path, body, answer, err, w.Body)
			}
		}
		c.send("DELETE", "/api/rollouts/"+id, "")
	})
}
