package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// attemptOf returns the name of the attempt in a path. Invalid UTF-8 is replaced, as in the original server.
func attemptOf(r *http.Request) string {
	return strings.ToValidUTF8(r.PathValue("attempt"), "\ufffd")
}

func (g *Gateway) postEvent(w http.ResponseWriter, r *http.Request) error {
	e, err := read(g, w, r, (*checker).event)
	if err != nil {
		return err
	}
	e.attemptID = attemptOf(r)
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if found.Attempt == nil {
		return errNoAttempt(found.id())
	}
	e.timestamp = agl.TimestampOf(time.Now())
	if err := g.record(r.Context(), found, e, e.span(&found)); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, e.appendJSON(nil, found.id()))
	return nil
}

func (c *checker) event(doc jsontext.Value) *event {
	e := &event{data: jsontext.Value("{}")}
	if path := []any{"body"}; c.object(doc, path) {
		kind, _ := rawjson.Get(doc, "event_type")
		if !c.missing(kind, doc, at(path, "event_type")) {
			e.kind = c.text(kind, at(path, "event_type"))
		}
		if data, ok := rawjson.Get(doc, "data"); ok && c.dict(data, at(path, "data")) {
			e.data = data
		}
	}
	return e
}

func (g *Gateway) queryEvents(w http.ResponseWriter, r *http.Request) error {
	var c checker
	query := r.URL.Query()
	experts := true
	if values := query["include_routed_experts"]; len(values) > 0 {
		experts = c.boolean(queryText(values[len(values)-1]), []any{"query", "include_routed_experts"})
	}
	if err := c.errProblems(); err != nil {
		return err
	}
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	events, err := g.events(r.Context(), &found)
	if err != nil {
		return err
	}
	if kinds := query["event_type"]; len(kinds) > 0 {
		events = slices.DeleteFunc(events, func(e event) bool { return e.kind != kinds[len(kinds)-1] })
	}
	if query.Get("format") == "triplet" {
		for i := range events {
			events[i].trim()
		}
		if query.Get("dedupe") != "none" {
			events = lastOfEachPrompt(events)
		}
	}
	writeJSON(w, http.StatusOK, rawjson.AppendArray(nil, events, func(dst []byte, e event) []byte {
		if !experts && e.kind == eventModelRequest {
			e.data = rawjson.Remove(e.data, "routed_experts")
		}
		return e.appendJSON(dst, found.id())
	}))
	return nil
}

// events returns the events of the attempt that this API shows, in order.
func (g *Gateway) events(ctx context.Context, r *rollout) ([]event, error) {
	page, err := g.cfg.Store.QuerySpansJSON(ctx, agl.QuerySpansParams{RolloutID: r.storeID(), Paging: agl.Paging{Limit: -1}})
	if errors.Is(err, agl.ErrEvicted) {
		return nil, errStatus(http.StatusGone, "Rollout "+r.id()+": its events were removed by retention")
	}
	if err != nil {
		return nil, err
	}
	var events []event
	for _, payload := range page.Items {
		e, ok := eventOf(payload)
		if !ok && r.Attempt != nil {
			e, ok = foreignEvent(payload, r.Attempt.AttemptID)
		}
		if ok && e.attemptID == r.attemptID() {
			events = append(events, e)
		}
	}
	dropSupersededExperts(events)
	return events, nil
}
