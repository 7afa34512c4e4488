package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/tinker/chat"
)

// Model asks a backend for one token, as the proxy does for an agent.
func (d *Doctor) Model(ctx context.Context, check string, model proxy.Model) {
	const engines = "for grpo use an engine that returns both, such as vLLM 0.10.2 or later"
	began := time.Now()
	got, err := d.try(ctx, model)
	took := time.Since(began).Round(time.Millisecond)
	switch {
	case err != nil:
		d.failedModel(ctx, check, model, err)
	case got.ids && got.logprobs:
		d.Addf(check, OK, "", "answers in %s, with token ids and log-probabilities", took)
	case model.TextOnly || model.API != proxy.APIOpenAI:
		d.Addf(check, OK, "", "answers in %s; text only: fine for apo and baseline, not for grpo", took)
	case got.ids:
		d.Addf(check, Warn, engines, "answers in %s, with token ids but without log-probabilities: fine for apo and baseline, not for grpo", took)
	case got.logprobs:
		d.Addf(check, Warn, engines, "answers in %s, with log-probabilities but without token ids: fine for apo and baseline, not for grpo", took)
	default:
		d.Addf(check, Warn, engines, "answers in %s, text only: fine for apo and baseline, not for grpo", took)
	}
}

// failedModel adds a finding, with a remedy, for a backend that does not answer.
func (d *Doctor) failedModel(ctx context.Context, check string, model proxy.Model, err error) {
	remedy := "start it, or change its base_url"
	if refused, ok := errors.AsType[*refusalError](err); ok {
		switch refused.status {
		case http.StatusUnauthorized, http.StatusForbidden:
			remedy = "set its key: api_key: env:NAME"
		case http.StatusNotFound:
			remedy = "check base_url, which usually ends in /v1, and backend_model"
		case http.StatusBadGateway: // the proxy's own, whose text is all that there is of the error
			if strings.Contains(refused.Error(), "certificate signed by unknown authority") {
				remedy = giveCA
			}
		case http.StatusBadRequest:
			remedy = "see what the backend says"
			plain := model
			plain.TextOnly = true
			if _, err := d.try(ctx, plain); err == nil && !model.TextOnly {
				remedy = "set text_only: true; that is fine for apo and baseline, not for grpo"
			}
		}
	}
	d.Addf(check, Fail, remedy, "%s: %v", secret.RedactURL(model.BaseURL), err)
}

// refusalError is a response with a status other than 200.
type refusalError struct {
	status  int
	message string
}

func (e *refusalError) Error() string {
	return fmt.Sprintf("answers %d: %s", e.status, strings.TrimSpace(e.message))
}

// tokenData says what the record of a call has besides text.
type tokenData struct{ ids, logprobs bool }

// try makes one call through a proxy that runs only for this call.
func (d *Doctor) try(ctx context.Context, model proxy.Model) (_ tokenData, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	records, err := store.Open(ctx, string(store.Memory)+":", store.Options{})
	if err != nil {
		return tokenData{}, err
	}
	defer func() { err = errors.Join(err, records.Close(context.WithoutCancel(ctx))) }()
	called, err := records.StartRollout(ctx, agl.StartRolloutParams{}) // the proxy records only calls of an attempt
	if err != nil {
		return tokenData{}, err
	}
	backends := proxy.NewTransport()
	backends.TLSClientConfig = d.cfg.TLS
	defer backends.CloseIdleConnections()
	gateway, err := proxy.New(proxy.Config{
		Models: []proxy.Model{model}, Spans: records, LookupEnv: d.cfg.LookupEnv, Transport: backends, Retry: proxy.Retry{Attempts: 1}, IdleTimeout: d.cfg.Timeout,
	})
	if err != nil {
		return tokenData{}, err
	}
	gateway.Start(ctx)
	defer func() { err = errors.Join(err, gateway.Close(ctx)) }()
	client := &http.Client{Transport: chat.Transport{Handler: gateway}}
	// Newer hosted models name the limit differently.
	for _, limit := range []string{"max_tokens", "max_completion_tokens"} {
		err = askForToken(ctx, client, called.Attempt, model.Name, limit)
		refused, ok := errors.AsType[*refusalError](err)
		if !ok || refused.status != http.StatusBadRequest || !strings.Contains(refused.message, "max_completion_tokens") {
			break
		}
	}
	if err != nil {
		return tokenData{}, err
	}
	if err := gateway.Flush(ctx, []string{called.RolloutID}); err != nil {
		return tokenData{}, err
	}
	recorded, err := records.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: called.RolloutID})
	has := func(name string) bool {
		return slices.ContainsFunc(recorded.Items, func(s agl.Span) bool { _, ok := s.Attributes.Get(name); return ok })
	}
	return tokenData{has(agl.AttrResponseTokenIDs), has(agl.AttrLogprobsContent)}, err
}

// maxReply bounds how many bytes of a reply are read.
const maxReply = 64 << 10

func askForToken(ctx context.Context, client *http.Client, by *agl.Attempt, model, limit string) error {
	name, err := json.Marshal(model)
	if err != nil {
		return fmt.Errorf("the model's name as JSON: %w", err)
	}
	body := fmt.Appendf(nil, `{"model":%s,"messages":[{"role":"user","content":"Say ok."}],"%s":1}`, name, limit)
	target := "http://proxy.invalid/rollout/" + by.RolloutID + "/attempt/" + by.AttemptID + "/v1/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(reply, &said) == nil && said.Error.Message != "" {
		reply = []byte(said.Error.Message)
	}
	return &refusalError{status: res.StatusCode, message: string(reply)}
}
