package rest

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

type startRequest struct {
	agl.EnqueueRollout
	workerID agl.Null[string]
}

// UnmarshalJSONFrom reads the document twice: it is a rollout to enqueue with
// one more key.
func (r *startRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readTwice(dec, &r.EnqueueRollout, func(in rawjson.Reader, name []byte) error {
		if string(name) == "worker_id" {
			return r.workerID.UnmarshalJSONFrom(in.Decoder)
		}
		return in.SkipValue()
	})
}

func (s *Server) startRollout(c *call) error {
	var req startRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	started, err := s.store.StartRollout(c.ctx, agl.StartRolloutParams{
		EnqueueRollout: req.EnqueueRollout, WorkerID: req.workerID, IdempotencyKey: c.idempotencyKey(),
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusCreated, started.AppendJSON(c.out))
}

func (s *Server) queryRollouts(c *call) error  { return s.rolloutPage(c, false) }
func (s *Server) searchRollouts(c *call) error { return s.rolloutPage(c, true) }

func (s *Server) rolloutPage(c *call, search bool) error {
	var p agl.QueryRolloutsParams
	f := newFilters("", map[string]*string{"rollout_id_contains": &p.RolloutIDContains})
	f.lists = func(dec *jsontext.Decoder, name string) (bool, error) {
		switch name {
		case "status_in":
			return true, readEnums(dec, &p.StatusIn, agl.RolloutStatuses())
		case "rollout_id_in":
			if dec.PeekKind() == 'n' {
				p.RolloutIDIn = nil
				return true, dec.SkipValue()
			}
			return true, read(dec).Strings(&p.RolloutIDIn)
		}
		return false, nil
	}
	f.queried = func(name string, values []string) (err error) {
		switch name {
		case "status_in":
			p.StatusIn, err = queryEnums(name, values, agl.RolloutStatuses())
		case "rollout_id_in":
			p.RolloutIDIn = values
		}
		return err
	}
	if err := c.query(f, search); err != nil {
		return err
	}
	p.Paging, p.Logic = f.Paging, f.logic
	page, err := s.store.QueryRollouts(c.ctx, p)
	if err != nil {
		return err
	}
	return sendPage(c, page, appendItem)
}

func (c *call) rolloutID() string { return c.request.PathValue("rollout_id") }

// sendFound answers with item, or with null if the store has none: clients of
// the reference take an id that names nothing so.
func sendFound(c *call, item rawjson.Appender, err error) error {
	switch {
	case errors.Is(err, agl.ErrNotFound):
		return c.send(http.StatusOK, append(c.out, "null"...))
	case err != nil:
		return err
	}
	return c.send(http.StatusOK, item.AppendJSON(c.out))
}

func (s *Server) getRollout(c *call) error {
	found, err := s.store.GetRollout(c.ctx, agl.GetRolloutParams{RolloutID: c.rolloutID()})
	return sendFound(c, &found, err)
}

type updateRolloutRequest struct{ agl.UpdateRolloutParams }

// UnmarshalJSONFrom tells a key that is absent, which leaves the field, from
// one that is null.
func (r *updateRolloutRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		null := dec.PeekKind() == 'n'
		switch string(name) {
		case "input":
			return read(dec).Raw(&r.Input)
		case "mode":
			r.Mode = new(agl.Mode)
			if null {
				return dec.SkipValue()
			}
			return rawjson.Enum(read(dec), r.Mode, agl.Modes())
		case "resources_id":
			r.ResourcesID = new(agl.Null[string])
			return r.ResourcesID.UnmarshalJSONFrom(dec)
		case "status":
			if null {
				return errNullField(string(name))
			}
			r.Status = new(agl.RolloutStatus)
			return rawjson.Enum(read(dec), r.Status, agl.RolloutStatuses())
		case "config":
			if null {
				return errNullField(string(name))
			}
			r.Config = new(agl.RolloutConfig)
			return r.Config.UnmarshalJSONFrom(dec)
		case "metadata":
			if null {
				return read(dec).Raw(&r.Metadata)
			}
			return read(dec).RawDict(&r.Metadata)
		default:
			return dec.SkipValue()
		}
	})
}

func (s *Server) updateRollout(c *call) error {
	var req updateRolloutRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	req.RolloutID = c.rolloutID()
	updated, err := s.store.UpdateRollout(c.ctx, req.UpdateRolloutParams)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, updated.AppendJSON(c.out))
}

func (s *Server) cancelRollout(c *call) error {
	cancelled, err := s.store.CancelRollout(c.ctx, agl.CancelRolloutParams{RolloutID: c.rolloutID()})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, cancelled.AppendJSON(c.out))
}

func (s *Server) deleteRollout(c *call) error {
	if err := s.store.DeleteRollout(c.ctx, agl.DeleteRolloutParams{RolloutID: c.rolloutID()}); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
