package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/rest/client"
)

// modelKeys are the flags of a server of models that takes the keys of a store.
type modelKeys struct {
	flags.Trust

	Store flags.URL `placeholder:"URL" help:"Also accept the keys of the store at this URL, which agl key create makes, each for what its scopes allow. Every request then needs a key."`
}

// keyStore is the store whose keys a server of models takes. Without one its fields are nil.
type keyStore struct {
	keys  access.Checker
	audit access.Teller
	store *client.Client
}

func (s keyStore) Close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// open returns the store. The caller closes it.
func (f *modelKeys) open(ctx context.Context, log *slog.Logger) (keyStore, error) {
	if f.Store == "" {
		return keyStore{}, nil
	}
	settings, err := f.TLS()
	if err != nil {
		return keyStore{}, err
	}
	store, err := client.New(client.Config{URL: string(f.Store), TLS: settings, Logger: log, RetryTimeout: -1})
	if err != nil {
		return keyStore{}, err
	}
	if err := askStore(ctx, store, log); err != nil {
		return keyStore{}, errors.Join(fmt.Errorf("--store: %s: %w", secret.RedactURL(string(f.Store)), err), store.Close())
	}
	return keyStore{store.Keys(), store, store}, nil
}

// askTimeout bounds how long the start waits for the store.
const askTimeout = 2 * time.Second

// askStore asks the store of a server once whether it is there. A store that is away, or that refuses the server's
// token, may be set right while the server runs: its log says so. One that cannot be reached by TLS is an error.
func askStore(ctx context.Context, store *client.Client, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch err := store.Health(ctx); {
	case httpserver.Untrusted(err):
		return err
	case errors.Is(err, agl.ErrUnavailable), agl.IsContextError(err):
		log.WarnContext(ctx, "the store does not answer; records of calls wait for it, and calls with keys get 503 until it does", "error", err)
	case errors.Is(err, agl.ErrUnimplemented):
		log.ErrorContext(ctx, "the server at the address of the store is no store; what needs one fails until one answers, and records of calls are lost", "error", err)
	}
	return nil
}

// takesSpans refuses a server that answers but lacks what this program needs to record spans, as that of Agent-lightning in
// Python does. Otherwise whatever an agent does would be done, and lost.
func takesSpans(ctx context.Context, store *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := store.Ready(ctx); errors.Is(err, agl.ErrUnimplemented) {
		return err
	}
	return nil
}

// chatScopes say who may chat with a model, and who may list the models.
func chatScopes(method string) access.Scope {
	if method == http.MethodGet {
		return access.Live | access.Readers
	}
	return access.Live | access.Runner | access.Train
}

// guard serves the callers who may chat with models.
func guard(callers access.Guard, next http.Handler) http.Handler {
	callers.Open = access.NewOpen(access.MaxOpen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := callers.Allow(r, chatScopes(r.Method)); err != nil {
			refuse(w, admin.AccessError(err))
			return
		}
		leave, err := callers.Enter(r)
		if err != nil {
			refuse(w, admin.AccessError(err))
			return
		}
		defer leave()
		ctx, stop := access.Watch(r.Context(), callers.Gone(r))
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ofPrograms refuses requests that web pages of other sites make a browser send. A server that asks
// for no key also refuses host names other than localhost: a page could point its own name at the
// server (DNS rebinding).
func ofPrograms(next http.Handler, keyed bool) (http.Handler, error) {
	check, err := httpserver.NewGuard(nil, nil)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := check.Check(r)
		if err == nil && !keyed && httpserver.Rebound(r) {
			err = fmt.Errorf("header Host: got %q, and web pages reach a server that asks for no key only under addresses and localhost", r.Host)
		}
		if err != nil {
			refuse(w, openai.NewError(http.StatusForbidden, openai.PermissionError, "cross_origin", err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// refuse answers an error in OpenAI's form.
func refuse(w http.ResponseWriter, e *openai.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	_ = exchange.WriteJSON(w, e.Status, e.AppendJSON(nil)) // a write fails only if the client has gone
}
