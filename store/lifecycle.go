package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// This file is the whole lifecycle of a rollout, as functions of (rollout, attempt,
// event, now) without I/O and without a clock. An attempt is live while it is
// preparing or running. A rollout is in the queue exactly while it is queuing or
// requeuing.
//
//	event                    attempt                        rollout (only through its latest attempt)      worker
//	claimed, started         new: preparing                 preparing, end time cleared                    busy with it
//	claim returned           removed                        queuing, or requeuing after a retry            idle
//	span stored              heartbeat; preparing and       queuing, preparing, requeuing → running, if    —
//	                         unresponsive → running         the attempt is running now
//	status reported          set; end time set when it has  derived; a finished one changes only between   busy while live,
//	                         ended, cleared when live       failed and succeeded, a cancelled one never    else idle
//	status of a rollout set  —; if it is cancelled, as in   set; end time when finished, cleared when      —
//	                         the row "cancelled"            queued; running, preparing: not when finished
//	revised                  as status reported             as set, whatever the retry condition            as reported
//	cancelled                live → failed, end time,       cancelled, end time, unless finished           idle
//	                         outcome cancelled
//	deadline passed          live → timeout or              derived                                        unknown
//	                         unresponsive, end time,
//	                         outcome
//	worker heartbeat         heartbeat, if it is the only   —                                              heartbeat
//	                         live one of that worker id,
//	                         which has not asked for work
//	                         since
//
// Once a rollout is cancelled, spans and live statuses no longer change its
// attempts, and an attempt that the cancellation ended keeps that outcome whatever
// its runner still reports.

// derivedStatus is the rollout status that follows from its latest attempt.
func derivedStatus(config agl.RolloutConfig, a *agl.Attempt) agl.RolloutStatus {
	switch a.Status {
	case agl.AttemptPreparing:
		return agl.RolloutPreparing
	case agl.AttemptRunning:
		return agl.RolloutRunning
	case agl.AttemptSucceeded:
		return agl.RolloutSucceeded
	case agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive:
	}
	if a.SequenceID < config.WithDefaults().MaxAttempts && slices.Contains(config.RetryCondition, a.Status) {
		return agl.RolloutRequeuing
	}
	return agl.RolloutFailed
}

// setStatus sets a rollout's status. Finishing sets the end time, queueing clears it.
func setStatus(r agl.Rollout, status agl.RolloutStatus, now agl.Timestamp) agl.Rollout {
	r.Status = status
	switch {
	case status.Finished():
		r.EndTime = agl.Some(now)
	case status.Queued():
		r.EndTime = agl.Null[agl.Timestamp]{}
	}
	return r
}

// beginAttempt returns a rollout with its next attempt. prior is the number of the last attempt.
func beginAttempt(r agl.Rollout, prior int, attemptID string, worker agl.Null[string], now agl.Timestamp) (agl.Rollout, agl.Attempt) {
	r.Status = agl.RolloutPreparing
	r.EndTime = agl.Null[agl.Timestamp]{}
	return r, agl.Attempt{
		RolloutID:  r.RolloutID,
		AttemptID:  attemptID,
		SequenceID: prior + 1,
		StartTime:  now,
		Status:     agl.AttemptPreparing,
		WorkerID:   worker,
	}
}

// returnable reports whether a claim can be undone because nobody has worked on it. A heartbeat does not count as
// work, since an attempt also gets heartbeats of a worker that never learned of its claim.
func returnable(r *agl.Rollout, latest *agl.Attempt, attemptID string) bool {
	return r.Status == agl.RolloutPreparing && latest != nil && latest.AttemptID == attemptID && latest.Status == agl.AttemptPreparing
}

// unclaim restores the rollout of a returned claim.
func unclaim(r agl.Rollout, returned *agl.Attempt) agl.Rollout {
	r.Status = agl.RolloutQueuing
	if returned.SequenceID > 1 {
		r.Status = agl.RolloutRequeuing
	}
	return r
}

// spanStored counts a stored span as a heartbeat of its attempt.
func spanStored(r agl.Rollout, a agl.Attempt, latest bool, now agl.Timestamp) (agl.Rollout, agl.Attempt) {
	a.LastHeartbeatTime = agl.Some(now)
	if r.Status == agl.RolloutCancelled {
		return r, a
	}
	if a.Status == agl.AttemptPreparing || a.Status == agl.AttemptUnresponsive {
		a = revive(a)
	}
	if latest && a.Status == agl.AttemptRunning && (r.Status.Queued() || r.Status == agl.RolloutPreparing) {
		r.Status = agl.RolloutRunning
	}
	return r, a
}

// revive makes an attempt run again and removes the outcome that the store wrote.
func revive(a agl.Attempt) agl.Attempt {
	a.Status = agl.AttemptRunning
	a.EndTime = agl.Null[agl.Timestamp]{}
	a.Metadata = withoutStoreOutcome(a.Metadata)
	return a
}

// statusReported sets the status that a runner reports for an attempt. metadata, if not nil, replaces the attempt's.
func statusReported(
	r agl.Rollout, a agl.Attempt, latest bool, status agl.AttemptStatus, metadata jsontext.Value, now agl.Timestamp,
) (agl.Rollout, agl.Attempt) {
	cancelled := r.Status == agl.RolloutCancelled
	a.Metadata = replaceMetadata(&a, r.Status, metadata)
	if cancelled && status.Live() {
		return r, a
	}
	a.Status, a.EndTime = status, agl.Null[agl.Timestamp]{}
	if !status.Live() {
		a.EndTime = agl.Some(now)
	}
	if metadata == nil && !cancelled {
		a.Metadata = withoutStoreOutcome(a.Metadata)
	}
	if latest {
		r = follow(r, &a, now)
	}
	return r, a
}

// follow sets a rollout's status to the one derived from its latest attempt.
func follow(r agl.Rollout, a *agl.Attempt, now agl.Timestamp) agl.Rollout {
	status := derivedStatus(r.Config, a)
	if r.Status.Finished() {
		switch {
		case r.Status == agl.RolloutCancelled:
			return r
		case a.Status == agl.AttemptFailed:
			status = agl.RolloutFailed // not requeuing: a report reopens nothing
		case a.Status != agl.AttemptSucceeded:
			return r
		}
	}
	if status == r.Status {
		return r
	}
	return setStatus(r, status, now)
}

// replaceMetadata returns the attempt's metadata after an update. A cancelled
// attempt keeps that outcome.
func replaceMetadata(a *agl.Attempt, status agl.RolloutStatus, metadata jsontext.Value) jsontext.Value {
	if metadata == nil {
		return a.Metadata
	}
	if outcome, _ := a.Outcome(); status == agl.RolloutCancelled && outcome.Kind == agl.OutcomeCancelled {
		return agl.WithOutcome(metadata, outcome)
	}
	return metadata
}

// rolloutStatusSet sets the status given to UpdateRollout. latest is nil if there is no attempt.
func rolloutStatusSet(
	r agl.Rollout, latest *agl.Attempt, status agl.RolloutStatus, now agl.Timestamp,
) (agl.Rollout, *agl.Attempt, error) {
	switch {
	case r.Status.Finished() && !status.Finished() && !status.Queued():
		return r, latest, agl.Errorf(agl.CodeIllegalState,
			"Rollout %s is %s: its status cannot become %s, only queuing, requeuing or another final one; a new attempt reopens it too",
			r.RolloutID, r.Status, status)
	case status == agl.RolloutCancelled:
		r, latest = cancel(r, latest, now)
		return r, latest, nil
	}
	return setStatus(r, status, now), latest, nil
}

// statusRevised sets the status given to ReviseRollout, for the latest attempt as well. latest is nil if there is no
// attempt.
func statusRevised(
	r agl.Rollout, latest *agl.Attempt, status agl.RolloutStatus, now agl.Timestamp,
) (agl.Rollout, *agl.Attempt, error) {
	var ofAttempt agl.AttemptStatus
	switch status {
	case agl.RolloutRunning:
		ofAttempt = agl.AttemptRunning
	case agl.RolloutSucceeded:
		ofAttempt = agl.AttemptSucceeded
	case agl.RolloutFailed:
		ofAttempt = agl.AttemptFailed
	default:
		return rolloutStatusSet(r, latest, status, now)
	}
	if latest != nil {
		reported, a := statusReported(r, *latest, true, ofAttempt, nil, now)
		r, latest = reported, &a
	}
	if r.Status == status {
		return r, latest, nil
	}
	return rolloutStatusSet(r, latest, status, now)
}

// cancel ends a rollout and its live attempt.
func cancel(r agl.Rollout, latest *agl.Attempt, now agl.Timestamp) (agl.Rollout, *agl.Attempt) {
	if latest != nil && latest.Status.Live() {
		a := endByStore(*latest, agl.AttemptFailed, agl.OutcomeCancelled, "the rollout was cancelled", now)
		latest = &a
	}
	return setStatus(r, agl.RolloutCancelled, now), latest
}

// gracePeriod is how long a runner has to send a heartbeat after an outage of the
// store: the default interval of heartbeats.
const gracePeriod = 10 * time.Second

// limits holds the engine's additions to the limits in a rollout's config.
type limits struct {
	unresponsive time.Duration // for rollouts without unresponsive_seconds; 0 means none
	outages      [2]outage     // the last ones, the earlier one first
}

// outage is a time in which no heartbeats could be stored.
type outage struct{ start, end agl.Timestamp }

// unresponsiveSeconds returns how long an attempt may go without a heartbeat.
func (l limits) unresponsiveSeconds(c *agl.RolloutConfig) agl.Null[float64] {
	if c.UnresponsiveSeconds.Valid || l.unresponsive == 0 {
		return c.UnresponsiveSeconds
	}
	return agl.Some(l.unresponsive.Seconds())
}

// deadline returns the time after which the latest attempt is ended. Outages of the store do not extend a timeout.
func deadline(r *agl.Rollout, a *agl.Attempt, l limits) (at agl.Timestamp, ok bool) {
	at, ok = silenceDeadline(r, a, l)
	if limit := r.Config.TimeoutSeconds; limit.Valid && running(r, a) {
		if timeout := a.StartTime + agl.Timestamp(limit.V); !ok || timeout < at {
			at, ok = timeout, true
		}
	}
	return at, ok
}

// silenceDeadline returns the time after which the latest attempt is ended unless it sends a heartbeat. If an outage of the
// store kept it from sending one in time, it has a grace period after the outage.
func silenceDeadline(r *agl.Rollout, a *agl.Attempt, l limits) (at agl.Timestamp, ok bool) {
	limit := l.unresponsiveSeconds(&r.Config)
	if !limit.Valid || !running(r, a) {
		return 0, false
	}
	heartbeat := a.LastHeartbeatTime.Or(a.StartTime)
	due := heartbeat + agl.Timestamp(limit.V)
	at = due
	for _, o := range l.outages {
		if heartbeat < o.end && due >= o.start {
			at = max(at, o.end.Add(gracePeriod))
		}
	}
	return at, true
}

func running(r *agl.Rollout, a *agl.Attempt) bool {
	return (r.Status == agl.RolloutPreparing || r.Status == agl.RolloutRunning) && a.Status.Live()
}

// deadlinePassed ends an attempt whose deadline has passed; a timeout takes
// precedence over being unresponsive. fired is false before the deadline.
func deadlinePassed(r agl.Rollout, a agl.Attempt, l limits, now agl.Timestamp) (_ agl.Rollout, _ agl.Attempt, fired bool) {
	if at, ok := deadline(&r, &a, l); !ok || now <= at {
		return r, a, false
	}
	if limit := r.Config.TimeoutSeconds; limit.Valid && now-a.StartTime > agl.Timestamp(limit.V) {
		a = endByStore(a, agl.AttemptTimeout, agl.OutcomeTimeout,
			fmt.Sprintf("no result within timeout_seconds = %g", limit.V), now)
	} else {
		which := "unresponsive_seconds"
		if !r.Config.UnresponsiveSeconds.Valid {
			which = "the store's default for unresponsive_seconds"
		}
		a = endByStore(a, agl.AttemptUnresponsive, agl.OutcomeUnresponsive,
			fmt.Sprintf("no heartbeat for %s = %g", which, l.unresponsiveSeconds(&r.Config).V), now)
	}
	return follow(r, &a, now), a, true
}

func endByStore(a agl.Attempt, status agl.AttemptStatus, kind agl.OutcomeKind, why string, now agl.Timestamp) agl.Attempt {
	a.Status = status
	a.EndTime = agl.Some(now)
	a.Metadata = agl.WithOutcome(a.Metadata, agl.Outcome{Kind: kind, Message: why})
	return a
}

// withoutStoreOutcome removes an outcome that the store itself has written.
func withoutStoreOutcome(metadata jsontext.Value) jsontext.Value {
	outcome, _ := (&agl.Attempt{Metadata: metadata}).Outcome()
	switch outcome.Kind {
	case agl.OutcomeTimeout, agl.OutcomeUnresponsive, agl.OutcomeCancelled:
		rest := rawjson.Remove(metadata, agl.MetadataOutcome)
		if string(rest) == "{}" {
			return nil
		}
		return rest
	default:
		return metadata
	}
}

func newWorker(id string) agl.Worker {
	return agl.Worker{WorkerID: id, Status: agl.WorkerUnknown}
}

// workerPolled records that a worker asked for work. Unless it has an attempt, it
// is idle.
func workerPolled(w agl.Worker, now agl.Timestamp) agl.Worker {
	w.LastDequeueTime = agl.Some(now)
	if w.Status != agl.WorkerIdle && !w.CurrentAttemptID.Valid {
		w.Status = agl.WorkerIdle
		w.LastIdleTime = agl.Some(now)
	}
	return w
}

// workerBusy makes a live attempt the worker's current one.
func workerBusy(w agl.Worker, a *agl.Attempt, now agl.Timestamp) agl.Worker {
	if w.Status != agl.WorkerBusy || w.CurrentRolloutID.V != a.RolloutID || w.CurrentAttemptID.V != a.AttemptID {
		w.LastBusyTime = agl.Some(now)
	}
	w.Status = agl.WorkerBusy
	w.CurrentRolloutID = agl.Some(a.RolloutID)
	w.CurrentAttemptID = agl.Some(a.AttemptID)
	return w
}

// worksOn reports whether the attempt is the worker's current one.
func worksOn(w *agl.Worker, a *agl.Attempt) bool {
	return w.CurrentAttemptID.Valid && w.CurrentAttemptID.V == a.AttemptID && w.CurrentRolloutID.V == a.RolloutID
}

// workerReleased clears a worker's current attempt. Its status becomes idle, or unknown if the store ended the
// attempt.
func workerReleased(w agl.Worker, status agl.WorkerStatus, now agl.Timestamp) agl.Worker {
	w.Status = status
	w.LastIdleTime = agl.Some(now)
	w.CurrentRolloutID = agl.Null[string]{}
	w.CurrentAttemptID = agl.Null[string]{}
	return w
}

// workerFollows updates a worker by an attempt that carries its id; changed is
// false when an ended attempt is not its current one.
func workerFollows(w agl.Worker, a *agl.Attempt, now agl.Timestamp) (_ agl.Worker, changed bool) {
	switch {
	case a.Status.Live():
		return workerBusy(w, a, now), true
	case !worksOn(&w, a):
		return w, false
	case a.Status == agl.AttemptTimeout || a.Status == agl.AttemptUnresponsive:
		return workerReleased(w, agl.WorkerUnknown, now), true
	default:
		return workerReleased(w, agl.WorkerIdle, now), true
	}
}

// workerHeartbeat records a heartbeat; nil stats keep the last ones.
func workerHeartbeat(w agl.Worker, stats jsontext.Value, now agl.Timestamp) agl.Worker {
	w.LastHeartbeatTime = agl.Some(now)
	if stats != nil {
		w.HeartbeatStats = stats
	}
	return w
}
