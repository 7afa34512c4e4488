package storetest

import (
	"slices"

	"github.com/agl-go/agl"
)

// model is the specification of a store, small enough to verify by reading: a list of
// rollouts, a queue, and the rules in the order of the documentation. It shares no code
// with the engine.
type model struct {
	now      float64
	tick     int // counts the operations that queue rollouts
	rollouts []*modelRollout
	queue    []modelPlace
	workers  map[string]*modelWorker
}

// modelPlace is a place in the queue. Rollouts that were queued in the same tick have no
// defined order.
type modelPlace struct {
	r    *modelRollout
	tick int
}

type modelRollout struct {
	id       string
	run      string
	status   agl.RolloutStatus
	ended    bool
	most     int
	retry    []agl.AttemptStatus
	timeout  float64 // 0 is never
	silence  float64
	attempts []*modelAttempt
	last     int64 // sequence id
	spans    int
}

type modelAttempt struct {
	id      string
	status  agl.AttemptStatus
	ended   bool
	worker  string
	start   float64
	beat    float64 // 0 is none
	outcome agl.OutcomeKind
}

type modelWorker struct {
	status  agl.WorkerStatus
	attempt *modelAttempt
	since   float64 // when it claimed the attempt
	asked   float64 // when it last found the queue empty
}

func (m *model) latest(r *modelRollout) *modelAttempt {
	if len(r.attempts) == 0 {
		return nil
	}
	return r.attempts[len(r.attempts)-1]
}

// moveTo sets a rollout's status and updates the queue.
func (m *model) moveTo(r *modelRollout, status agl.RolloutStatus, tick int) {
	r.status = status
	switch status {
	case agl.RolloutFailed, agl.RolloutSucceeded, agl.RolloutCancelled:
		r.ended = true
	case agl.RolloutQueuing, agl.RolloutRequeuing:
		r.ended = false
		if !slices.ContainsFunc(m.queue, func(p modelPlace) bool { return p.r == r }) {
			m.queue = append(m.queue, modelPlace{r, tick})
		}
		return
	case agl.RolloutPreparing, agl.RolloutRunning:
	}
	m.queue = slices.DeleteFunc(m.queue, func(p modelPlace) bool { return p.r == r })
}

func (m *model) nextTick() int {
	m.tick++
	return m.tick
}

func (m *model) begin(r *modelRollout, attemptID, worker string) {
	a := &modelAttempt{id: attemptID, status: agl.AttemptPreparing, worker: worker, start: m.now}
	r.attempts = append(r.attempts, a)
	m.moveTo(r, agl.RolloutPreparing, 0)
	r.ended = false
	m.busy(a)
}

func (m *model) worker(id string) *modelWorker {
	if m.workers[id] == nil {
		m.workers[id] = &modelWorker{status: agl.WorkerUnknown}
	}
	return m.workers[id]
}

func (m *model) busy(a *modelAttempt) {
	if a.worker != "" {
		w := m.worker(a.worker)
		if w.attempt != a {
			w.since = m.now
		}
		w.status, w.attempt = agl.WorkerBusy, a
	}
}

// free ends the worker's work on the attempt, if it is still at it.
func (m *model) free(a *modelAttempt, status agl.WorkerStatus) {
	if a.worker != "" && m.worker(a.worker).attempt == a {
		w := m.worker(a.worker)
		w.status, w.attempt = status, nil
	}
}

// follow sets the status of a rollout by its latest attempt.
func (m *model) follow(r *modelRollout, tick int) {
	a := m.latest(r)
	finished := r.status == agl.RolloutFailed || r.status == agl.RolloutSucceeded
	switch {
	case r.status == agl.RolloutCancelled:
	case a.status == agl.AttemptSucceeded:
		m.moveTo(r, agl.RolloutSucceeded, tick)
	case finished && a.status == agl.AttemptFailed:
		m.moveTo(r, agl.RolloutFailed, tick)
	case finished:
	case a.status == agl.AttemptPreparing:
		m.moveTo(r, agl.RolloutPreparing, tick)
	case a.status == agl.AttemptRunning:
		m.moveTo(r, agl.RolloutRunning, tick)
	case slices.Contains(r.retry, a.status) && len(r.attempts) < r.most:
		m.moveTo(r, agl.RolloutRequeuing, tick)
	default:
		m.moveTo(r, agl.RolloutFailed, tick)
	}
}

func (m *model) addSpan(r *modelRollout, a *modelAttempt) {
	r.last++
	r.spans++
	a.beat = m.now
	if r.status == agl.RolloutCancelled {
		return
	}
	if a.status == agl.AttemptPreparing || a.status == agl.AttemptUnresponsive {
		a.status, a.ended = agl.AttemptRunning, false
		a.retract()
	}
	if a == m.latest(r) && a.status == agl.AttemptRunning && !r.ended {
		m.moveTo(r, agl.RolloutRunning, 0)
	}
}

// retract removes the outcome that the store itself has set at the end of an attempt.
func (a *modelAttempt) retract() {
	switch a.outcome {
	case agl.OutcomeTimeout, agl.OutcomeUnresponsive, agl.OutcomeCancelled:
		a.outcome = ""
	default:
	}
}

func (m *model) report(r *modelRollout, a *modelAttempt, status agl.AttemptStatus) {
	live := status == agl.AttemptPreparing || status == agl.AttemptRunning
	cancelled := r.status == agl.RolloutCancelled
	if !cancelled || !live {
		a.status, a.ended = status, !live
		if !cancelled {
			a.retract()
		}
		if a == m.latest(r) {
			m.follow(r, m.nextTick())
		}
	}
	switch a.status {
	case agl.AttemptPreparing, agl.AttemptRunning:
		m.busy(a)
	case agl.AttemptTimeout, agl.AttemptUnresponsive:
		m.free(a, agl.WorkerUnknown)
	case agl.AttemptFailed, agl.AttemptSucceeded:
		m.free(a, agl.WorkerIdle)
	}
}

func (m *model) cancel(r *modelRollout) {
	m.moveTo(r, agl.RolloutCancelled, 0)
	if a := m.latest(r); a != nil && (a.status == agl.AttemptPreparing || a.status == agl.AttemptRunning) {
		a.status, a.ended, a.outcome = agl.AttemptFailed, true, agl.OutcomeCancelled
		m.free(a, agl.WorkerIdle)
	}
}

// setStatus returns false if the store must refuse the change.
func (m *model) setStatus(r *modelRollout, status agl.RolloutStatus) bool {
	switch {
	case status == agl.RolloutCancelled:
		m.cancel(r)
	case (status == agl.RolloutPreparing || status == agl.RolloutRunning) && r.ended:
		return false
	default:
		m.moveTo(r, status, m.nextTick())
	}
	return true
}

func (m *model) heartbeat(id string) {
	w := m.worker(id)
	if w.attempt == nil || w.asked > w.since {
		return
	}
	others := 0
	current := false
	for _, r := range m.rollouts {
		a := m.latest(r)
		if a == nil || a.worker != id || a.status != agl.AttemptPreparing && a.status != agl.AttemptRunning {
			continue
		}
		if a == w.attempt {
			current = true
		} else {
			others++
		}
	}
	if current && others == 0 {
		w.attempt.beat = m.now
	}
}

// expire ends the attempts whose deadlines have passed.
func (m *model) expire() {
	tick := m.nextTick()
	for _, r := range m.rollouts {
		a := m.latest(r)
		if r.status != agl.RolloutPreparing && r.status != agl.RolloutRunning || a == nil ||
			a.status != agl.AttemptPreparing && a.status != agl.AttemptRunning {
			continue
		}
		switch {
		case r.timeout > 0 && m.now-a.start > r.timeout:
			a.status, a.outcome = agl.AttemptTimeout, agl.OutcomeTimeout
		case r.silence > 0 && m.now-max(a.beat, a.start) > r.silence:
			a.status, a.outcome = agl.AttemptUnresponsive, agl.OutcomeUnresponsive
		default:
			continue
		}
		a.ended = true
		m.follow(r, tick)
		m.free(a, agl.WorkerUnknown)
	}
}

func (m *model) remove(r *modelRollout) {
	for _, a := range r.attempts {
		m.free(a, agl.WorkerIdle)
	}
	m.rollouts = slices.DeleteFunc(m.rollouts, func(o *modelRollout) bool { return o == r })
}
