package rest

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

type startAttemptRequest struct{ workerID agl.Null[string] }

func (r *startAttemptRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		if string(name) == "worker_id" {
			return r.workerID.UnmarshalJSONFrom(dec)
		}
		return dec.SkipValue()
	})
}

func (s *Server) startAttempt(c *call) error {
	var req startAttemptRequest
	if err := c.decode(&req, false); err != nil {
		return err
	}
	started, err := s.store.StartAttempt(c.ctx, agl.StartAttemptParams{
		RolloutID: c.rolloutID(), WorkerID: req.workerID, IdempotencyKey: c.idempotencyKey(),
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusCreated, started.AppendJSON(c.out))
}

func (s *Server) queryAttempts(c *call) error  { return s.attemptPage(c, false) }
func (s *Server) searchAttempts(c *call) error { return s.attemptPage(c, true) }

func (s *Server) attemptPage(c *call, search bool) error {
	f := newFilters("sequence_id", nil)
	if err := c.query(f, search); err != nil {
		return err
	}
	page, err := s.store.QueryAttempts(c.ctx, agl.QueryAttemptsParams{RolloutID: c.rolloutID(), Paging: f.Paging})
	if err != nil {
		return err
	}
	return sendPage(c, page, appendItem)
}

func (s *Server) getLatestAttempt(c *call) error {
	found, err := s.store.GetLatestAttempt(c.ctx, agl.GetLatestAttemptParams{RolloutID: c.rolloutID()})
	return sendFound(c, &found, err)
}

type updateAttemptRequest struct{ agl.UpdateAttemptParams }

// UnmarshalJSONFrom takes any subset of the keys; none of them may be null.
func (r *updateAttemptRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "status", "worker_id", "last_heartbeat_time", "metadata":
			if dec.PeekKind() == 'n' {
				return errNullField(string(name))
			}
		}
		switch string(name) {
		case "status":
			r.Status = new(agl.AttemptStatus)
			return rawjson.Enum(read(dec), r.Status, agl.AttemptStatuses())
		case "worker_id":
			r.WorkerID = new(string)
			return read(dec).String(r.WorkerID)
		case "last_heartbeat_time":
			r.LastHeartbeatTime = new(agl.Timestamp)
			return rawjson.Float(read(dec), (*float64)(r.LastHeartbeatTime))
		case "metadata":
			return read(dec).RawDict(&r.Metadata)
		default:
			return dec.SkipValue()
		}
	})
}

func (s *Server) updateAttempt(c *call) error {
	var req updateAttemptRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	req.RolloutID = c.rolloutID()
	req.AttemptID = c.request.PathValue("attempt_id")
	if req.AttemptID == "" {
		// The path of the latest attempt has no placeholder.
		req.AttemptID = agl.LatestAttempt
	}
	updated, err := s.store.UpdateAttempt(c.ctx, req.UpdateAttemptParams)
	if err != nil {
		return err
	}
	if outcome, over := updated.Outcome(); over && outcome.Kind == agl.OutcomeCancelled {
		c.markCancelled()
	}
	return c.send(http.StatusOK, updated.AppendJSON(c.out))
}

// markCancelled tells the runner that wrote to an attempt that it was
// cancelled: its agent should stop.
func (c *call) markCancelled() { c.Header()[headerState] = []string{"cancelled"} }
