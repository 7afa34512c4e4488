package agl_test

import (
	stdlib "encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// library is one of the two JSON libraries that users have.
type library struct {
	name      string
	marshal   func(v any) ([]byte, error)
	unmarshal func(data []byte, v any) error
}

func libraries() []library {
	return []library{
		{"encoding/json", stdlib.Marshal, stdlib.Unmarshal},
		{
			"go-json-experiment",
			func(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) },
			func(data []byte, v any) error { return json.Unmarshal(data, v) },
		},
	}
}

// holder is a user's own type with nouns in it.
type holder[T any] struct {
	Value   T            `json:"value"`
	Pointer *T           `json:"pointer"`
	List    []T          `json:"list"`
	Map     map[string]T `json:"map"`
}

// sameForm checks that both libraries write value as doc, wherever it stands, and
// read it back.
func sameForm[T any](t *testing.T, value T, doc string) {
	t.Helper()
	t.Run(fmt.Sprintf("%T", value), func(t *testing.T) {
		t.Parallel()
		held := holder[T]{value, &value, []T{value}, map[string]T{"key": value}}
		heldDoc := strings.ReplaceAll(`{"value":#,"pointer":#,"list":[#],"map":{"key":#}}`, "#", doc)
		for _, writer := range libraries() {
			for _, c := range []struct {
				where string
				value any
				want  string
			}{{"value", value, doc}, {"pointer", &value, doc}, {"holder", held, heldDoc}, {"pointer to a holder", &held, heldDoc}} {
				if got, err := writer.marshal(c.value); err != nil || string(got) != c.want {
					t.Errorf("%s writes a %s as\n%s, %v, want\n%s", writer.name, c.where, got, err, c.want)
				}
			}
			for _, reader := range libraries() {
				var back holder[T]
				if err := reader.unmarshal([]byte(heldDoc), &back); err != nil {
					t.Errorf("%s: %v", reader.name, err)
				}
				if again, err := writer.marshal(back); err != nil || string(again) != heldDoc {
					t.Errorf("read by %s and written by %s:\n%s, %v, want\n%s", reader.name, writer.name, again, err, heldDoc)
				}
			}
		}
	})
}

const (
	configDoc  = `{"timeout_seconds":1.5,"unresponsive_seconds":null,"max_attempts":2,"retry_condition":["failed","timeout"]}`
	rolloutDoc = `{"rollout_id":"ro-1","input":{"q":1.0,"é":12345678901234567890},"start_time":1.0,"end_time":null,"mode":"train","resources_id":null,` +
		`"status":"running","config":` + configDoc + `,"metadata":{"b":1,"a":[]}}`
	attemptDoc = `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":1,"start_time":1.0,"end_time":2.5,"status":"failed","worker_id":"w",` +
		`"last_heartbeat_time":null,"metadata":{"agentlightning.outcome":{"kind":"timeout","message":"late"}}}`
	statusDoc   = `{"status_code":"ERROR","description":"no","more":1.0}`
	contextDoc  = `{"trace_id":"1","span_id":"2","is_remote":true,"trace_state":{"k":"v"}}`
	eventDoc    = `{"name":"e","attributes":{"k":[1,2.5]},"timestamp":3.0}`
	linkDoc     = `{"context":` + contextDoc + `,"attributes":null}`
	resourceDoc = `{"attributes":{"service.name":"x"},"schema_url":""}`
	spanDoc     = `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":3,"trace_id":"1","span_id":"2","parent_id":null,"name":"n","status":` + statusDoc +
		`,"attributes":{"r":1.0,"b":true},"events":[` + eventDoc + `],"links":[` + linkDoc + `],"start_time":1.5,"end_time":null,"context":` + contextDoc +
		`,"parent":null,"resource":` + resourceDoc + `,"ours":{"not":1}}`
	llmDoc    = `{"resource_type":"llm","endpoint":"http://h/v1","model":"m","api_key":null,"sampling_parameters":{"temperature":1.0}}`
	proxyDoc  = `{"resource_type":"proxy_llm","endpoint":"http://p/v1","model":"m","api_key":"env:KEY","sampling_parameters":{}}`
	promptDoc = `{"resource_type":"prompt_template","template":"hi {n}","engine":"f-string"}`
)

// Every noun has one JSON form, whichever library writes it, as a value and behind
// a pointer.
func TestNounsHaveOneForm(t *testing.T) {
	t.Parallel()
	var (
		config   = agl.RolloutConfig{TimeoutSeconds: agl.Some(1.5), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout}}
		outcome  = agl.Outcome{Kind: agl.OutcomeTimeout, Message: "late"}
		context  = agl.SpanContext{TraceID: "1", SpanID: "2", IsRemote: true, TraceState: jsontext.Value(`{"k":"v"}`)}
		status   = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some("no"), Extra: jsontext.Value(`{"more":1.0}`)}
		event    = agl.SpanEvent{Name: "e", Attributes: agl.Attributes(`{"k":[1,2.5]}`), Timestamp: agl.Some[agl.Timestamp](3)}
		link     = agl.SpanLink{Context: context}
		resource = agl.SpanResource{Attributes: agl.Attributes(`{"service.name":"x"}`)}
		llm      = agl.LLM{Endpoint: "http://h/v1", Model: "m", SamplingParameters: jsontext.Value(`{"temperature":1.0}`)}
		proxy    = agl.ProxyLLM{LLM: agl.LLM{Endpoint: "http://p/v1", Model: "m", APIKey: agl.Some("env:KEY")}}
		prompt   = agl.PromptTemplate{Template: "hi {n}", Engine: agl.PromptFString}
	)
	rollout := agl.Rollout{
		RolloutID: "ro-1", Input: jsontext.Value(`{"q":1.0,"é":12345678901234567890}`), StartTime: 1, Mode: agl.ModeTrain, Status: agl.RolloutRunning,
		Config: config, Metadata: jsontext.Value(`{"b":1,"a":[]}`),
	}
	attempt := agl.Attempt{
		RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 1, StartTime: 1, EndTime: agl.Some[agl.Timestamp](2.5), Status: agl.AttemptFailed,
		WorkerID: agl.Some("w"), Metadata: agl.WithOutcome(nil, outcome),
	}
	sameForm(t, config, configDoc)
	sameForm(t, rollout, rolloutDoc)
	sameForm(t, agl.AttemptedRollout{Rollout: rollout, Attempt: &attempt}, rolloutDoc[:len(rolloutDoc)-1]+`,"attempt":`+attemptDoc+`}`)
	sameForm(t, agl.EnqueueRollout{Input: jsontext.Value("null"), Config: &config}, `{"input":null,"mode":null,"resources_id":null,"config":`+configDoc+`,"metadata":null}`)
	sameForm(t, attempt, attemptDoc)
	sameForm(t, outcome, `{"kind":"timeout","message":"late"}`)
	sameForm(t, agl.Span{
		RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 3, TraceID: "1", SpanID: "2", Name: "n", Status: status, Attributes: agl.Attributes(`{"r":1.0,"b":true}`),
		Events: []agl.SpanEvent{event}, Links: []agl.SpanLink{link}, StartTime: agl.Some[agl.Timestamp](1.5), Context: &context, Resource: resource,
		Extra: jsontext.Value(`{"ours":{"not":1}}`),
	}, spanDoc)
	sameForm(t, status, statusDoc)
	sameForm(t, event, eventDoc)
	sameForm(t, link, linkDoc)
	sameForm(t, context, contextDoc)
	sameForm(t, resource, resourceDoc)
	sameForm(t, agl.SpanDraft{Name: "n", Status: agl.SpanStatus{Code: agl.StatusOK}}, `{"name":"n","attributes":{},"status":{"status_code":"OK","description":null}}`)
	sameForm(t, agl.SpanDraft{Name: "n", Attributes: agl.Attributes(`{"a":1}`), Events: []agl.SpanEvent{event}, StartTime: 1, EndTime: 2, TraceID: "1", SpanID: "2", ParentID: "3"},
		`{"name":"n","attributes":{"a":1},"status":{"status_code":"UNSET","description":null},"events":[`+eventDoc+`],"start_time":1.0,"end_time":2.0,"trace_id":"1","span_id":"2","parent_id":"3"}`)
	sameForm(t, agl.Attributes(`{"z":"é","a":[true]}`), `{"z":"é","a":[true]}`)
	sameForm(t, agl.Attributes(nil), `{}`)
	sameForm(t, llm, llmDoc)
	sameForm(t, proxy, proxyDoc)
	sameForm(t, prompt, promptDoc)
	resources := agl.Resources{{Name: "p", Resource: prompt}, {Name: "l\"", Resource: llm}, {Name: "pl", Resource: proxy}}
	resourcesDoc := `{"p":` + promptDoc + `,"l\"":` + llmDoc + `,"pl":` + proxyDoc + `}`
	sameForm(t, resources, resourcesDoc)
	sameForm(t, agl.Resources(nil), `{}`)
	sameForm(t, agl.ResourcesUpdate{ResourcesID: "rs-1", CreateTime: 1, UpdateTime: 2, Version: 3, Resources: resources},
		`{"resources_id":"rs-1","create_time":1.0,"update_time":2.0,"version":3,"resources":`+resourcesDoc+`}`)
	sameForm(t, agl.Worker{WorkerID: "w", Status: agl.WorkerBusy, HeartbeatStats: jsontext.Value(`{"cpu":0.50}`), LastBusyTime: agl.Some[agl.Timestamp](1), CurrentRolloutID: agl.Some("ro-1")},
		`{"worker_id":"w","status":"busy","heartbeat_stats":{"cpu":0.50},"last_heartbeat_time":null,"last_dequeue_time":null,"last_busy_time":1.0,"last_idle_time":null,`+
			`"current_rollout_id":"ro-1","current_attempt_id":null}`)
	sameForm(t, agl.Document{Kind: "metric", ID: "m", Parent: "r", Sequence: -3, Version: 2, UpdateTime: 1.5, Body: jsontext.Value(`{"a":1.0}`)},
		`{"kind":"metric","id":"m","parent":"r","sequence":-3,"version":2,"update_time":1.5,"body":{"a":1.0}}`)
	sameForm(t, agl.Event{ID: "8", Kind: agl.EventDocument, Document: "run/r", Status: "written"},
		`{"id":"8","kind":"document","document":"run/r","status":"written"}`)
	sameForm(t, agl.Event{ID: "7", Kind: agl.EventAttempt, RolloutID: "ro-1", AttemptID: "at-1", Status: "running"},
		`{"id":"7","kind":"attempt","rollout_id":"ro-1","attempt_id":"at-1","status":"running"}`)
	sameForm(t, agl.Statistics{Name: "memory", TotalRollouts: 1, TotalSpans: 5, Uptime: 1500 * time.Millisecond},
		`{"name":"memory","total_rollouts":1,"total_attempts":0,"total_spans":5,"total_resources":0,"total_workers":0,"uptime":1.5}`)
	sameForm(t, agl.Statistics{Memory: &agl.MemoryStatistics{TotalSpanBytes: 1, EvictionThresholdBytes: 2, SafeThresholdBytes: 3, MemoryCapacityBytes: 4}},
		`{"name":"","total_rollouts":0,"total_attempts":0,"total_spans":0,"total_resources":0,"total_workers":0,"uptime":0.0,`+
			`"total_span_bytes":1,"eviction_threshold_bytes":2,"safe_threshold_bytes":3,"memory_capacity_bytes":4}`)
	sameForm(t, agl.Statistics{QueueClosed: true},
		`{"name":"","total_rollouts":0,"total_attempts":0,"total_spans":0,"total_resources":0,"total_workers":0,"uptime":0.0,"queue_closed":true}`)
	sameForm(t, agl.Null[string]{}, `null`)
	sameForm(t, agl.Some("x"), `"x"`)
	sameForm(t, agl.Some(0.5), `0.5`)
	sameForm(t, agl.Some(attempt), attemptDoc)
	sameForm(t, agl.Some[agl.Timestamp](1), `1.0`)
	sameForm(t, agl.Timestamp(1795172350.7193449), `1795172350.7193449`)
	sameForm(t, agl.Page[agl.Attempt]{Items: []agl.Attempt{attempt}, Limit: -1, Total: 1}, `{"items":[`+attemptDoc+`],"limit":-1,"offset":0,"total":1}`)
	sameForm(t, agl.Page[agl.Attempt]{Limit: 5, Offset: 2}, `{"items":[],"limit":5,"offset":2,"total":0}`)
}

// What is refused is a FieldError with the place in the noun, whichever library
// reads it.
func TestLibrariesReportFields(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries() {
		var config agl.RolloutConfig
		err := lib.unmarshal([]byte(`{"retry_condition":["failed","gone"]}`), &config)
		field, ok := errors.AsType[*agl.FieldError](err)
		if !ok || field.Pointer != "/retry_condition/1" || field.Type != "literal_error" {
			t.Errorf("%s: got %v", lib.name, err)
		}
	}
}
