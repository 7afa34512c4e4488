package client_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
)

// answering returns a client whose server gives one answer to everything.
func answering(t testing.TB, status int, body []byte) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		URL: "http://store", RetryTimeout: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// FuzzAnswers has the client read any answer: it returns a value or an error
// with a code.
func FuzzAnswers(f *testing.F) {
	for _, doc := range []string{
		"null", "[]", "{}", spanDocument, `{"items":[` + spanDocument + `],"limit":1,"offset":0,"total":1}`,
		`{"detail":[{"type":"missing","loc":["body",0],"msg":"Field required","input":{}}]}`,
		`{"detail":"no","error_type":"RuntimeError","code":"evicted"}`, `{"stored":[[0,7]],"cancelled":["at-1"]}`,
		`[{"rollout_id":"ro-1","attempt":{"attempt_id":"at-1","status":"running"}}]`,
	} {
		f.Add(200, []byte(doc))
		f.Add(422, []byte(doc))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		c := answering(t, status, body)
		ctx := t.Context()
		span := agl.Span{RolloutID: "ro-1", AttemptID: "at-1", SpanID: "s"}
		var errs []error
		_, err := c.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: "ro-1"})
		errs = append(errs, err)
		_, err = c.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}})
		errs = append(errs, err)
		_, err = c.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1})
		errs = append(errs, err)
		_, err = c.GetResources(ctx, agl.GetResourcesParams{ResourcesID: "x"})
		errs = append(errs, err)
		_, err = c.Statistics(ctx)
		errs = append(errs, err)
		for _, err := range errs {
			if err != nil && agl.ErrorCode(err) == "" {
				t.Errorf("%v has no code", err)
			}
			if status >= 300 && err == nil {
				t.Errorf("status %d is no error", status)
			}
		}
	})
}

// FuzzEvents has the client read any event stream; it always ends with an error.
func FuzzEvents(f *testing.F) {
	for _, stream := range []string{
		": agl\n\nid: 1\nevent: rollout\ndata: {\"id\":\"1\",\"kind\":\"rollout\",\"rollout_id\":\"ro-1\",\"status\":\"running\"}\n\n",
		"event: error\ndata: {\"detail\":\"no\",\"code\":\"unimplemented\"}\n\n",
		"data: {\ndata: \"id\":\"2\"}\r\n\r\n", "data:\n\n", ":\n\n", "data: nonsense\n\n", "id: 1",
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var last error
		for _, err := range answering(t, 200, stream).Events(t.Context(), agl.EventsParams{}) {
			last = err
		}
		if last == nil {
			t.Error("the stream ended without an error")
		}
	})
}
