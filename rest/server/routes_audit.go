package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// audit serves the audit log.
type audit struct {
	kept *access.Audit
	open bool // the server has no token, so it does not know who its callers without a key are
}

// missing is the error of a server without an audit log, and nil otherwise.
func (a audit) missing() error {
	return unimplementedUnless(a.kept != nil, "this server does not keep what callers do")
}

// record stores an act that has succeeded. A failed one is not an act: callers without permission must not be able to
// push others out of the log.
func (a audit) record(x *exchange) {
	if a.kept == nil || !x.audited || x.status >= http.StatusBadRequest || a.open && x.caller.KeyID == "" {
		return
	}
	a.kept.RecordCall(x.log, x.request, &x.caller, x.status)
}

// add stores an act that the caller did at another server, such as a proxy. That server sends the caller's own key,
// so nobody can be named who was not there.
func (a audit) add(x *exchange, reported *wire.Act) error {
	x.audited = false // reporting an act is not an act itself
	act := access.Act{
		Time: agl.TimestampOf(time.Now()), By: x.caller.By(), KeyID: x.caller.KeyID, From: reported.From, Via: access.From(x.request),
		Method: reported.Method, Path: reported.Path, Status: reported.Status,
	}
	return x.answerJSON(http.StatusCreated, &act, a.kept.Record(x.context(), &act))
}

// maxListed bounds the acts of one answer.
const maxListed = 10_000

// actsJSON is the answer of list.
type actsJSON struct {
	Items []access.Act `json:"items"`
	Total int          `json:"total"`
}

func (a audit) list(x *exchange) error {
	query := x.request.URL.Query()
	number := func(name string, fallback, most int) (int, error) {
		text := query.Get(name)
		if text == "" {
			return fallback, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			return 0, agl.Errorf(agl.CodeInvalid, "%s: got %.40q, must be a number between 0 and %d", name, text, most)
		}
		return n, nil
	}
	limit, err := number("limit", 100, maxListed) //nolint:mnd // documented
	if err != nil {
		return err
	}
	offset, err := number("offset", 0, access.MaxActs*2) //nolint:mnd // more are not kept
	if err != nil {
		return err
	}
	acts, total, err := a.kept.List(x.context(), max(limit, 1), offset)
	return x.answerJSON(http.StatusOK, &actsJSON{acts[:min(limit, len(acts))], total}, err)
}
