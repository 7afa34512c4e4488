package gateway

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
)

// body reads a request's JSON body. A body with another content type counts as a string, as in the original server.
func (g *Gateway) body(w http.ResponseWriter, r *http.Request) (jsontext.Value, error) {
	raw, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	var c checker
	if len(raw) == 0 {
		c.refuse("missing", "Field required", nil, []any{"body"})
		return nil, c.errProblems()
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if isJSON := kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"); !isJSON {
		return queryText(string(raw)), nil
	}
	doc, ok := document(raw)
	if !ok {
		c.refuse("json_invalid", "JSON decode error", jsontext.Value("{}"), []any{"body", 0})
		c.problems[0].context = jsontext.Value(`{"error":"not a JSON document in UTF-8"}`)
		return nil, c.errProblems()
	}
	return doc, nil
}

// read returns what a checker makes of a request's JSON body. The error lists its problems.
func read[T any](g *Gateway, w http.ResponseWriter, r *http.Request, check func(c *checker, doc jsontext.Value) T) (made T, err error) {
	doc, err := g.body(w, r)
	if err != nil {
		return made, err
	}
	var c checker
	made = check(&c, doc)
	return made, c.errProblems()
}

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := httpserver.ReadBody(w, r, g.cfg.MaxBodyBytes)
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return nil, errStatus(http.StatusRequestEntityTooLarge, "The body is too long")
	}
	if err != nil {
		return nil, errStatus(httpserver.BodyStatus(err))
	}
	return raw, callerOf(r).reserve(r.Context(), access.Amounts{Bytes: int64(len(raw))})
}
