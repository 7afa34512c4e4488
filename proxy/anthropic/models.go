package anthropic

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
)

// model is an entry of GET /v1/models.
type model struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
	Lifecycle   string `json:"lifecycle"`
}

func modelOf(name string) model {
	// The epoch stands for a date of release that is unknown.
	return model{Type: "model", ID: name, DisplayName: name, CreatedAt: "1970-01-01T00:00:00Z", Lifecycle: "active"}
}

// AppendModel appends the answer of GET /v1/models/NAME.
func AppendModel(dst []byte, name string) ([]byte, error) {
	m := modelOf(name)
	return openai.AppendWire(dst, &m)
}

// AppendModels appends the answer of GET /v1/models with a page of the models. The query is that of the request: limit (without one the
// page has all), and after_id or before_id. What is wrong with it is an [openai.Error].
func AppendModels(dst []byte, names []string, query url.Values) ([]byte, error) {
	page, more, err := pageOf(names, query)
	if err != nil {
		return dst, err
	}
	list := struct {
		Data    []model `json:"data"`
		HasMore bool    `json:"has_more"`
		FirstID *string `json:"first_id"`
		LastID  *string `json:"last_id"`
	}{Data: make([]model, len(page)), HasMore: more}
	for i, name := range page {
		list.Data[i] = modelOf(name)
	}
	if len(page) > 0 {
		list.FirstID, list.LastID = &page[0], &page[len(page)-1]
	}
	return openai.AppendWire(dst, &list)
}

// pageOf returns a page of a list, and whether there is more of it in the direction of the query.
func pageOf(names []string, query url.Values) (page []string, more bool, err error) {
	const most = 1000
	limit, after, before := len(names), query.Get("after_id"), query.Get("before_id")
	if given := query.Get("limit"); given != "" {
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > most {
			return nil, false, invalid("limit", given, fmt.Sprintf("a number from 1 to %d", most))
		}
	}
	if after != "" && before != "" {
		return nil, false, invalid("before_id", before, "left out beside after_id")
	}
	const aModel = "the id of a model of the list"
	if before != "" {
		end := slices.Index(names, before)
		if end < 0 {
			return nil, false, invalid("before_id", before, aModel)
		}
		start := max(end-limit, 0)
		return names[start:end], start > 0, nil
	}
	start := 0
	if after != "" {
		if start = slices.Index(names, after) + 1; start == 0 {
			return nil, false, invalid("after_id", after, aModel)
		}
	}
	end := min(start+limit, len(names))
	return names[start:end], end < len(names), nil
}

func invalid(field, got, want string) error {
	e := openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "", fmt.Sprintf("%s: got %q, must be %s", field, got, want))
	e.Param = field
	return e
}
