package storetest

import (
	"math/rand/v2"

	"github.com/agl-go/agl"
)

func idTests(a *area) { a.test("long ids", testLongIDs) }

// longestID is the length of an id that every store must accept, in bytes.
const longestID = 1024

// longID returns an id that does not compress.
func longID(n int) string {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	id := make([]byte, n)
	for i := range id {
		id[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[random.IntN(64)]
	}
	return string(id)
}

func testLongIDs(h *harness) {
	started := h.start(agl.EnqueueRollout{}, "w")
	for name, call := range map[string]func(id string) error{
		"worker of a heartbeat": func(id string) error {
			return errorOf(h.Store.UpdateWorker(h.ctx, agl.UpdateWorkerParams{WorkerID: id}))
		},
		"worker of a dequeue": func(id string) error {
			return errorOf(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some(id)}))
		},
		"worker of an attempt": func(id string) error {
			return errorOf(h.Store.UpdateAttempt(h.ctx, agl.UpdateAttemptParams{
				RolloutID: started.RolloutID, AttemptID: started.Attempt.AttemptID, WorkerID: &id,
			}))
		},
		"worker of a start": func(id string) error {
			return errorOf(h.Store.StartRollout(h.ctx, agl.StartRolloutParams{WorkerID: agl.Some(id)}))
		},
		"worker of another attempt": func(id string) error {
			return errorOf(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: started.RolloutID, WorkerID: agl.Some(id)}))
		},
		"resources": func(id string) error {
			return errorOf(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: id, Resources: bundle("m")}))
		},
		"span": func(id string) error {
			return errorOf(h.Store.AddSpans(h.ctx, agl.AddSpansParams{
				Spans: []agl.Span{span(started.RolloutID, started.Attempt.AttemptID, id, 1)},
			}))
		},
		"sequence": func(id string) error {
			return errorOf(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: id, AttemptID: "at"}))
		},
		"idempotency key": func(id string) error {
			return errorOf(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{
				Rollouts: []agl.EnqueueRollout{{}}, IdempotencyKey: id,
			}))
		},
	} {
		if err := call(longID(longestID)); err != nil {
			h.Errorf("%s: an id of %d bytes: %v", name, longestID, err)
		}
		for _, n := range []int{longestID + 1, 50 * longestID} {
			if err := call(longID(n)); agl.ErrorCode(err) != agl.CodeInvalid {
				h.Errorf("%s: an id of %d bytes: got error %v, want one of code invalid", name, n, err)
			}
		}
	}
}
