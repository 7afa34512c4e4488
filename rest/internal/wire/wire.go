// Package wire defines what the server and the client of the store's HTTP API share: paths, headers, bodies of
// requests and answers, query parameters, error documents and event streams. Writer and reader of each stand side by
// side, with a test that they agree.
//
// The JSON forms of rollouts, spans and the other nouns are package agl's. The
// package must not know how a request is sent, nor what a store does with it.
package wire

import (
	"net/url"
	"strings"
	"time"
)

const (
	// Prefix begins all paths of the API. The constants below omit it.
	Prefix = "/v1/agl"
	// Traces is OpenTelemetry's path for spans, without the prefix.
	Traces = "/v1/traces"
	// Metrics is OpenTelemetry's path for metrics, without the prefix.
	Metrics = "/v1/metrics"
)

// The paths without ids.
const (
	Health               = "/health"
	Ready                = "/ready"
	Statistics           = "/statistics"
	StatusCounts         = "/statistics/rollouts"
	CallCounts           = "/statistics/calls"
	Events               = "/events"
	Enqueue              = "/queues/rollouts/enqueue"
	Dequeue              = "/queues/rollouts/dequeue"
	Return               = "/queues/rollouts/return"
	Close                = "/queues/rollouts/close"
	Open                 = "/queues/rollouts/open"
	Waits                = "/waits/rollouts"
	Rollouts             = "/rollouts"
	SearchRollouts       = "/rollouts/search"
	Resources            = "/resources"
	LatestResources      = "/resources/latest"
	Workers              = "/workers"
	SearchWorkers        = "/workers/search"
	Batches              = "/batches"
	Collect              = "/collect"
	Runs                 = "/runs"
	Spans                = "/spans"
	SpansBatch           = "/spans/batch"
	SearchSpans          = "/spans/search"
	NextSequenceID       = "/spans/next"
	NextSequenceIDsBatch = "/spans/next/batch"
	Keys                 = "/keys"
	RevokedAttempts      = "/keys/revoked"
	CheckKey             = "/keys/check"
	WhoAmI               = "/whoami"
	Login                = "/login"
	Logout               = "/logout"
	LoginOIDC            = "/login/oidc"
	LoginOIDCCallback    = "/login/oidc/callback"
)

// Paths with ids take ids that [Segment] has escaped, or the placeholders of a route.

// Rollout is the path of a rollout.
func Rollout(id string) string { return Rollouts + "/" + id }

// Cancel is the path that cancels a rollout.
func Cancel(rolloutID string) string { return Rollout(rolloutID) + "/cancel" }

// Attempts is the path of a rollout's attempts.
func Attempts(rolloutID string) string { return Rollout(rolloutID) + "/attempts" }

// SearchAttempts is the path that searches a rollout's attempts.
func SearchAttempts(rolloutID string) string { return Attempts(rolloutID) + "/search" }

// Attempt is the path of an attempt. The id may be agl.LatestAttempt.
func Attempt(rolloutID, attemptID string) string { return Attempts(rolloutID) + "/" + attemptID }

// RewardsOf is the path of a rollout's rewards.
func RewardsOf(rolloutID string) string { return Rollout(rolloutID) + "/rewards" }

// SignalsOf is the path of a rollout's triplets, trajectories or messages.
func SignalsOf(rolloutID, what string) string { return Rollout(rolloutID) + "/" + what }

// SpanTokenOf is the path that makes the span token of an attempt.
func SpanTokenOf(rolloutID, attemptID string) string { return Attempt(rolloutID, attemptID) + "/token" }

// ResourcesOf is the path of a bundle of resources.
func ResourcesOf(id string) string { return Resources + "/" + id }

// Run is the path of a run.
func Run(id string) string { return Runs + "/" + id }

// RunMetrics is the path of a run's metrics.
func RunMetrics(id string) string { return Run(id) + "/metrics" }

// Worker is the path of a worker.
func Worker(id string) string { return Workers + "/" + id }

// Key is the path of a key.
func Key(id string) string { return Keys + "/" + id }

// KeyUsage is the path at which the budget of a key is charged.
func KeyUsage(id string) string { return Key(id) + "/usage" }

// Segment escapes an id for a path.
func Segment(id string) string {
	if id == "." || id == ".." { // it would be a relative path
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// The headers that HTTP does not define, with their values.
const (
	IdempotencyKey = "Idempotency-Key" // on a request that creates: makes a repeat return the first answer

	LastEventID = "Last-Event-Id" // on a request for events: the last one that was seen

	Queue       = "Agl-Queue" // answers a dequeue while the queue is closed
	QueueClosed = "closed"

	AttemptState     = "Agl-Attempt-State" // answers a write to an attempt whose agent should stop
	AttemptCancelled = "cancelled"

	Certificate         = "Agl-Certificate" // answers a request that is refused
	CertificateOutdated = "outdated"        // the connection's client certificate: the next connection may show a newer one

	Wait           = "Agl-Wait" // answers a request that may block
	WaitComplete   = "complete"
	WaitIncomplete = "incomplete" // the server ended the wait early: ask again
)

// MaxWait bounds how long a dequeue may block.
const MaxWait = 60 * time.Second

// EventHeartbeat is the default interval at which an idle event stream carries a comment.
const EventHeartbeat = 15 * time.Second
