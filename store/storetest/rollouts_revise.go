package storetest

import (
	"strconv"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func reviseTests(a *area) {
	a.test("create under given ids", testCreate)
	a.test("creations that race", testCreateRace)
	a.test("revise", testRevise)
	a.test("revisions that race", testReviseRace)
	a.test("revisions of the status", testReviseStatus)
}

func (h *harness) needRevise() {
	h.Helper()
	if can := h.Store.Capabilities(); !can.CreateRollouts || !can.ReviseRollout {
		h.Skip("the store has neither CreateRollouts nor ReviseRollout")
	}
}

func (h *harness) create(rollouts ...agl.CreateRollout) []agl.AttemptedRollout {
	h.Helper()
	return must(h.Store.CreateRollouts(h.ctx, agl.CreateRolloutsParams{Rollouts: rollouts}))(h)
}

func created(id, input string, start bool) agl.CreateRollout {
	return agl.CreateRollout{RolloutID: id, EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(input)}, Start: start}
}

func testCreate(h *harness) {
	h.needRevise()
	got := h.create(created("b", `1`, true), created("a", `2`, false), created("b", `3`, false))
	equal(h, "rollouts", len(got), 3)
	equal(h, "the same id within one call", string(got[2].Input), `1`)
	h.wantStatus("b", agl.RolloutPreparing, agl.AttemptPreparing)
	h.wantStatus("a", agl.RolloutQueuing, "")
	again := h.create(created("c", `5`, true), created("b", `4`, true))
	equal(h, "an id that exists", string(again[1].Input), `1`)
	equal(h, "its attempt", again[1].Attempt.AttemptID, got[0].Attempt.AttemptID)
	id := func(r *agl.AttemptedRollout) string { return r.RolloutID }
	equal(h, "in the order of creation", ids(h.rollouts(agl.QueryRolloutsParams{}).Items, id), "b a c")
	equal(h, "claimed", ids(h.dequeue(9, ""), id), "a")
	for _, wrong := range []agl.CreateRollout{created("", `1`, true), created("d", `{`, true), created(longID(longestID+1), `1`, true)} {
		_, err := h.Store.CreateRollouts(h.ctx, agl.CreateRolloutsParams{Rollouts: []agl.CreateRollout{created("fresh", `1`, true), wrong}})
		h.wantError(err, agl.ErrInvalid, "")
	}
	h.wantError(errorOf(h.Store.GetRollout(h.ctx, agl.GetRolloutParams{RolloutID: "fresh"})), agl.ErrNotFound, "")
}

func testCreateRace(h *harness) {
	h.needRevise()
	const callers = 8
	var inputs [callers]string
	h.together(callers, func(i int) error {
		got, err := h.Store.CreateRollouts(h.ctx, agl.CreateRolloutsParams{Rollouts: []agl.CreateRollout{created("one", strconv.Itoa(i), true)}})
		if err == nil {
			inputs[i] = string(got[0].Input)
		}
		return err
	})
	for _, input := range inputs {
		equal(h, "the first one's input", input, inputs[0])
	}
	equal(h, "attempts", len(h.attempts("one")), 1)
}

func (h *harness) revise(p agl.ReviseRolloutParams) agl.AttemptedRollout {
	h.Helper()
	return must(h.Store.ReviseRollout(h.ctx, p))(h)
}

func testRevise(h *harness) {
	h.needRevise()
	r := h.create(agl.CreateRollout{RolloutID: "r", EnqueueRollout: agl.EnqueueRollout{Metadata: jsontext.Value(`{"n": 1.0}`)}, Start: true})[0]
	p := agl.ReviseRolloutParams{RolloutID: "r", IfMetadata: r.Metadata, Metadata: jsontext.Value(`{"n": 2.0}`)}
	equal(h, "metadata", string(h.revise(p).Metadata), `{"n": 2.0}`)
	h.wantError(errorOf(h.Store.ReviseRollout(h.ctx, p)), agl.ErrConflict, "Rollout r: its metadata has changed")
	equal(h, "after a conflict", string(h.get("r").Metadata), `{"n": 2.0}`)
	_, err := h.Store.ReviseRollout(h.ctx, agl.ReviseRolloutParams{RolloutID: "nope", Metadata: jsontext.Value(`{}`)})
	h.wantError(err, agl.ErrNotFound, "Rollout nope not found")
	queued := agl.RolloutQueuing
	for _, wrong := range []agl.ReviseRolloutParams{{Metadata: jsontext.Value(`[]`)}, {}, {Metadata: jsontext.Value(`{}`), Status: &queued}} {
		wrong.RolloutID, wrong.IfMetadata = "r", h.get("r").Metadata
		h.wantError(errorOf(h.Store.ReviseRollout(h.ctx, wrong)), agl.ErrInvalid, "")
	}
}

// testReviseRace increments a counter in the metadata of one rollout concurrently, and numbers other rollouts.
func testReviseRace(h *harness) {
	h.needRevise()
	const callers, each = 4, 5
	h.create(agl.CreateRollout{RolloutID: "counter", EnqueueRollout: agl.EnqueueRollout{Metadata: jsontext.Value(`{"n":0}`)}, Start: true})
	var mu sync.Mutex
	numbers := map[string]bool{}
	h.together(callers, func(i int) error {
		for j := range each {
			if err := h.count("counter"); err != nil {
				return err
			}
			id := strconv.Itoa(i) + "-" + strconv.Itoa(j)
			got, err := h.Store.CreateRollouts(h.ctx, agl.CreateRolloutsParams{Rollouts: []agl.CreateRollout{created(id, `1`, true)}})
			if err != nil {
				return err
			}
			numbered, err := h.Store.ReviseRollout(h.ctx, agl.ReviseRolloutParams{
				RolloutID: id, IfMetadata: got[0].Metadata, Metadata: jsontext.Value(`{}`), NumberKey: "no", NumberMin: 3,
			})
			if err != nil {
				return err
			}
			number, _ := rawjson.Get(numbered.Metadata, "no")
			mu.Lock()
			numbers[string(number)] = true
			mu.Unlock()
		}
		return nil
	})
	equal(h, "count", string(h.get("counter").Metadata), `{"n":`+strconv.Itoa(callers*each)+`}`)
	for n := range callers * each {
		equal(h, "number "+strconv.Itoa(n+3), numbers[strconv.Itoa(n+3)], true)
	}
}

// count adds 1 to the counter in a rollout's metadata, and tries again after each conflict.
func (h *harness) count(id string) error {
	for {
		r, err := h.Store.GetRollout(h.ctx, agl.GetRolloutParams{RolloutID: id})
		if err != nil {
			return err
		}
		raw, _ := rawjson.Get(r.Metadata, "n")
		n, err := strconv.Atoi(string(raw))
		if err != nil {
			return err
		}
		_, err = h.Store.ReviseRollout(h.ctx, agl.ReviseRolloutParams{
			RolloutID: id, IfMetadata: r.Metadata, Metadata: jsontext.Value(`{"n":` + strconv.Itoa(n+1) + `}`),
		})
		if agl.ErrorCode(err) != agl.CodeConflict {
			return err
		}
	}
}

func testReviseStatus(h *harness) {
	h.needRevise()
	for _, start := range []bool{true, false} {
		for status, attempt := range map[agl.RolloutStatus]agl.AttemptStatus{
			agl.RolloutRunning:   agl.AttemptRunning,
			agl.RolloutSucceeded: agl.AttemptSucceeded,
			agl.RolloutFailed:    agl.AttemptFailed,
			agl.RolloutCancelled: agl.AttemptFailed,
		} {
			h.Run(string(status)+" "+strconv.FormatBool(start), func(t *testing.T) {
				of := &harness{T: t, Instance: h.Instance, ctx: t.Context()}
				id := string(status) + strconv.FormatBool(start)
				r := of.create(created(id, `1`, start))[0]
				of.revise(agl.ReviseRolloutParams{RolloutID: id, IfMetadata: r.Metadata, Metadata: jsontext.Value(`{}`), Status: &status})
				want := attempt
				if !start {
					want = ""
				}
				got := of.wantStatus(id, status, want)
				equal(of, "has ended", got.EndTime.Valid, status.Finished())
			})
		}
	}
	h.wantEmptyQueue()
}
