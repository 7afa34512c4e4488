package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// contract checks exchanges with the reference's description of its API.
type contract struct {
	api     http.Handler
	doc     *openapi3.T
	router  routers.Router
	covered map[string]bool
	log     strings.Builder // the exchanges, with made-up ids and times replaced
	names   map[string]string
}

func newContract(t *testing.T, api http.Handler) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("testdata/store-openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("application/x-protobuf", openapi3filter.FileBodyDecoder)
	return &contract{api: api, doc: doc, router: router, covered: map[string]bool{}, names: map[string]string{}}
}

// do makes one exchange; a body makes the request's content type JSON. Answers
// that the document describes must be as it says.
func (c *contract) do(t *testing.T, method, path, body string, want int) []byte {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	c.api.ServeHTTP(w, r.Clone(t.Context()))
	answer := w.Body.Bytes()
	fmt.Fprintf(&c.log, "%s %s\n%s\n%d %s\n\n", method, c.anonymous(path), c.anonymous(body), w.Code, c.anonymous(string(answer)))
	if w.Code != want {
		t.Errorf("%s %s: status %d, want %d: %s", method, path, w.Code, want, answer)
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		return answer // an extension
	}
	c.covered[route.Method+" "+route.Path] = true
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}
	if want < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
			t.Errorf("%s %s: the test's request is not as described: %v", method, path, err)
		}
	}
	if described := route.Operation.Responses.Status(w.Code); described == nil || len(answer) == 0 {
		return answer
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(answer)),
	})
	if err != nil {
		t.Errorf("%s %s: the answer is not as described: %v\n%s", method, path, err, answer)
	}
	return answer
}

var (
	madeUpID = regexp.MustCompile(`\b(ro|at|rs)-[0-9a-f]{8,12}\b`)
	moment   = regexp.MustCompile(`\b1[0-9]{9}\.[0-9]+\b`)
	uptime   = regexp.MustCompile(`"(uptime|[a-z_]+_bytes)":[0-9.e-]+`)
)

func (c *contract) anonymous(text string) string {
	text = madeUpID.ReplaceAllStringFunc(text, func(id string) string {
		if c.names[id] == "" {
			c.names[id] = fmt.Sprintf("%s-%d", id[:2], len(c.names)+1)
		}
		return c.names[id]
	})
	text = moment.ReplaceAllString(text, "NOW")
	return uptime.ReplaceAllString(text, `"$1":N`)
}

// idOf returns the value of a key of a document, the first one.
func idOf(t *testing.T, doc []byte, key string) string {
	t.Helper()
	m := regexp.MustCompile(`"` + key + `":"([^"]+)"`).FindSubmatch(doc)
	if m == nil {
		t.Fatalf("no %s in %s", key, doc)
	}
	return string(m[1])
}

// TestContract makes every request of the protocol and compares the answers
// with the reference's schemas and with a golden file.
func TestContract(t *testing.T) {
	t.Parallel()
	c := newContract(t, newServer(t, server.Config{Store: memorytest.Open(t)}))
	const v1 = "/v1/agl"
	c.do(t, "GET", v1+"/health", "", 200)

	// Resources.
	c.do(t, "GET", v1+"/resources/latest", "", 200)
	added := c.do(t, "POST", v1+"/resources", `{"p":{"resource_type":"prompt_template","template":"hi {n}","engine":"f-string"},"l":{"resource_type":"llm","endpoint":"http://h/v1","model":"m"},"pl":{"resource_type":"proxy_llm","endpoint":"http://h","model":"m","api_key":"k","sampling_parameters":{"temperature":1.0}}}`, 201)
	resourcesID := idOf(t, added, "resources_id")
	c.do(t, "POST", v1+"/resources/mine", `{}`, 200)
	c.do(t, "POST", v1+"/resources/mine", `{"p":{"resource_type":"prompt_template","template":"","engine":"jinja"}}`, 200)
	c.do(t, "GET", v1+"/resources/"+resourcesID, "", 200)
	c.do(t, "GET", v1+"/resources/nope", "", 200)
	c.do(t, "GET", v1+"/resources?resources_id_contains=in&sort_by=version&sort_order=desc", "", 200)
	c.do(t, "GET", v1+"/resources/latest", "", 200)

	// The queue.
	c.do(t, "POST", v1+"/queues/rollouts/enqueue", `{"rollouts":[]}`, 201)
	queued := c.do(t, "POST", v1+"/queues/rollouts/enqueue", `{"rollouts":[{"input":{"a": 1.0, "z":"\u00e9"},"mode":"train","config":{"timeout_seconds":10,"max_attempts":2,"retry_condition":["failed"]},"metadata":{"k":12345678901234567890}},{"input":"x"}]}`, 201)
	first := idOf(t, queued, "rollout_id")
	c.do(t, "POST", v1+"/queues/rollouts/dequeue", `{"limit":0}`, 200)
	claimed := c.do(t, "POST", v1+"/queues/rollouts/dequeue", `{"limit":1,"worker_id":"w-1"}`, 200)
	attempt := idOf(t, claimed, "attempt_id")
	c.do(t, "POST", v1+"/queues/rollouts/dequeue", "", 200)
	c.do(t, "POST", v1+"/queues/rollouts/dequeue", "", 200)

	// Rollouts.
	started := c.do(t, "POST", v1+"/rollouts", `{"input":[1,2],"resources_id":"mine","worker_id":"w-2"}`, 201)
	second := idOf(t, started, "rollout_id")
	c.do(t, "GET", v1+"/rollouts/"+first, "", 200)
	c.do(t, "GET", v1+"/rollouts?limit=2&offset=1&sort_by=start_time", "", 200)
	c.do(t, "GET", v1+"/rollouts?status_in=preparing&status_in=running&rollout_id_in="+first, "", 200)
	c.do(t, "POST", v1+"/rollouts/search", `{"status_in":[],"limit":3}`, 200)
	c.do(t, "POST", v1+"/rollouts/search", `{"status_in":null,"rollout_id_in":["`+second+`"],"filter_logic":"or"}`, 200)
	c.do(t, "POST", v1+"/rollouts/"+second, `{"metadata":{"note":"x"},"mode":"val","resources_id":null}`, 200)
	c.do(t, "POST", v1+"/rollouts/nope", `{"mode":null}`, 400)

	// Spans.
	c.do(t, "POST", v1+"/spans/next", `{"rollout_id":"`+first+`","attempt_id":"`+attempt+`"}`, 200)
	span := strings.NewReplacer("ro-1", first, "at-1", attempt).Replace(spanDocument)
	c.do(t, "POST", v1+"/spans", strings.Replace(span, `"parent":null`, `"parent":null,"extra": {"a" : [1]}`, 1), 201)
	if got := c.do(t, "POST", v1+"/spans", span, 201); string(got) != "null" {
		t.Errorf("a span that is there already is answered with %s, want null", got)
	}
	c.do(t, "POST", v1+"/spans", strings.Replace(span, attempt, "at-nope", 1), 400)
	c.do(t, "GET", v1+"/spans?rollout_id="+first+"&attempt_id=latest&name_contains=al", "", 200)
	c.do(t, "POST", v1+"/spans/search", `{"rollout_id":"`+first+`","span_id":"nope"}`, 200)

	// Attempts.
	c.do(t, "POST", v1+"/rollouts/"+first+"/attempts/"+attempt, `{"status":"failed","metadata":{"why":"x"},"last_heartbeat_time":1.5,"worker_id":"w-1"}`, 200)
	c.do(t, "POST", v1+"/rollouts/"+first+"/attempts", "", 201)
	c.do(t, "POST", v1+"/rollouts/"+first+"/attempts", `{"worker_id":"w-3"}`, 201)
	c.do(t, "POST", v1+"/rollouts/"+first+"/attempts/latest", `{"status":"succeeded"}`, 200)
	c.do(t, "GET", v1+"/rollouts/"+first+"/attempts", "", 200)
	c.do(t, "POST", v1+"/rollouts/"+first+"/attempts/search", `{"sort_by":"start_time","sort_order":"desc","limit":1}`, 200)
	c.do(t, "GET", v1+"/rollouts/"+first+"/attempts/latest", "", 200)
	c.do(t, "GET", v1+"/rollouts/nope/attempts/latest", "", 200)

	// Workers.
	c.do(t, "POST", v1+"/workers/w-1", "", 200)
	c.do(t, "POST", v1+"/workers/w-1", `{"heartbeat_stats":{"cpu": 0.5}}`, 200)
	c.do(t, "GET", v1+"/workers/w-1", "", 200)
	c.do(t, "GET", v1+"/workers/nope", "", 200)
	c.do(t, "GET", v1+"/workers?status_in=busy&worker_id_contains=w", "", 200)
	c.do(t, "POST", v1+"/workers/search", `{"sort_by":"worker_id","sort_order":"desc"}`, 200)

	// Waits.
	c.do(t, "POST", v1+"/waits/rollouts", `{"rollout_ids":[],"timeout":null}`, 200)
	c.do(t, "POST", v1+"/waits/rollouts", `{"rollout_ids":["`+first+`","`+second+`","nope"],"timeout":-1}`, 200)
	c.do(t, "GET", v1+"/statistics", "", 200)

	// What the reference does not have.
	c.do(t, "POST", v1+"/spans/batch", `{"issue_sequence_ids":true,"spans":[`+strings.NewReplacer(`"sequence_id":1`, `"sequence_id":0`, "b7ad6b7169203331", "b7ad6b7169203332").Replace(span)+`,`+span+`]}`, 201)
	c.do(t, "POST", v1+"/spans/next", `{"rollout_id":"`+first+`","attempt_id":"`+attempt+`","count":5}`, 200)
	c.do(t, "POST", v1+"/spans/next/batch", `{"attempts":[{"rollout_id":"`+first+`","attempt_id":"`+attempt+`","count":2},{"rollout_id":"`+second+`","attempt_id":"none"}]}`, 200)
	c.do(t, "POST", v1+"/rollouts/"+second+"/cancel", "", 200)
	c.do(t, "DELETE", v1+"/rollouts/"+second, "", 204)
	c.do(t, "DELETE", v1+"/rollouts/"+second, "", 400)
	c.do(t, "POST", v1+"/queues/rollouts/return", `{"claims":[{"rollout_id":"`+first+`","attempt_id":"`+attempt+`"}]}`, 204)
	c.do(t, "POST", v1+"/queues/rollouts/close", "", 200)
	c.do(t, "POST", v1+"/queues/rollouts/dequeue", `{"wait_seconds":60}`, 200)
	c.do(t, "POST", v1+"/queues/rollouts/open", "", 200)

	// OpenTelemetry.
	c.do(t, "POST", "/v1/traces", `{"resourceSpans":[]}`, 200)
	c.do(t, "POST", "/v1/metrics", `{"resourceMetrics":[]}`, 200)
	c.do(t, "POST", "/v1/logs", "", 501)
	c.do(t, "POST", "/v1/development/profiles", "", 501)

	for path, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			if !c.covered[method+" "+path] {
				t.Errorf("%s %s: not tried", method, path)
			}
		}
	}
	golden(t, "contract.golden", c.log.String())
}

// TestExtensionsAreServed holds the description of what agl adds to the API, by which the dashboard's requests are checked,
// against the routes.
func TestExtensionsAreServed(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromFile("testdata/extensions-openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	placeholder := regexp.MustCompile(`\{\w+\}`)
	served := map[string]bool{}
	for _, route := range newServer(t, server.Config{Store: memorytest.Open(t)}).Routes() {
		served[placeholder.ReplaceAllString(route, "{}")] = true
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !served[method+" "+placeholder.ReplaceAllString(path, "{}")] {
				t.Errorf("%s %s is described and not served", method, path)
			}
		}
	}
}
