package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
)

type listedModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type modelList struct {
	Object string        `json:"object"`
	Data   []listedModel `json:"data"`
}

// serveModels answers GET /models and GET /models/{name}, in the form of Anthropic's API if the request names a version of it.
func (p *Proxy) serveModels(w http.ResponseWriter, r *http.Request, rt route) {
	var names []string
	for _, id := range p.upstream.Names() {
		if p.rules.allow(rt, id) {
			names = append(names, id)
		}
	}
	toAnthropic := r.Header.Get("Anthropic-Version") != ""
	if name, one := strings.CutPrefix(rt.path, "/models/"); one {
		p.serveModel(w, r, names, name, toAnthropic)
		return
	}
	if toAnthropic {
		body, err := anthropic.AppendModels(nil, names, r.URL.Query())
		p.answerBody(w, r, body, err)
		return
	}
	list := modelList{Object: "list", Data: make([]listedModel, len(names))}
	for i, id := range names {
		list.Data[i] = listed(id)
	}
	p.answerJSON(w, http.StatusOK, list)
}

// serveModel answers with the model of a name, which may be escaped.
func (p *Proxy) serveModel(w http.ResponseWriter, r *http.Request, names []string, name string, toAnthropic bool) {
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	switch {
	case !slices.Contains(names, name):
		e := openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "model_not_found", "the model "+name+" does not exist")
		e.Param = "model"
		if toAnthropic {
			e.Type = openai.NotFoundError
		}
		p.refuse(w, r, e)
	case toAnthropic:
		body, err := anthropic.AppendModel(nil, name)
		p.answerBody(w, r, body, err)
	default:
		p.answerJSON(w, http.StatusOK, listed(name))
	}
}

// answerBody answers with a body, or with the error of making it.
func (p *Proxy) answerBody(w http.ResponseWriter, r *http.Request, body []byte, err error) {
	if err == nil {
		p.answer(w, http.StatusOK, body)
		return
	}
	refused, ok := errors.AsType[*openai.Error](err)
	if !ok {
		refused = openai.NewError(http.StatusInternalServerError, openai.APIError, "", err.Error())
	}
	p.refuse(w, r, refused)
}

func listed(id string) listedModel { return listedModel{ID: id, Object: "model", OwnedBy: "agl"} }
