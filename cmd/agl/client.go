package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest"
)

// storeFlags say which store a command talks to.
type storeFlags struct {
	StoreURL storeURL `name:"store" default:"http://localhost:4747" env:"AGL_STORE_URL" help:"Base URL of the store."`
	Token    string   `env:"AGL_TOKEN" placeholder:"TOKEN" help:"The store's bearer token."`
}

// pageSize is how many items are asked for at a time.
const pageSize = 1000

// allPages calls fetch for page after page and each for every item.
func allPages[T any](
	ctx context.Context, limit int, fetch func(context.Context, agl.Paging) (agl.Page[T], error), each func(*T) error,
) error {
	for offset := 0; limit <= 0 || offset < limit; {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-offset)
		}
		page, err := fetch(ctx, agl.Paging{Limit: size, Offset: offset})
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		offset += len(page.Items)
		if len(page.Items) == 0 || offset >= page.Total {
			return nil
		}
	}
	return nil
}

// errStore names the store in an error of a call to it.
func (f storeFlags) errStore(err error) error {
	if err == nil || agl.IsContextError(err) {
		return err
	}
	return fmt.Errorf("store %s: %w", redactURL(string(f.StoreURL)), err)
}

// retryBudget is how long a command for people tries to reach a store.
const retryBudget = 1 * time.Second

// open returns a client of the store.
func (f storeFlags) open() (agl.Store, func(), error) {
	client, err := rest.NewClient(rest.ClientConfig{URL: string(f.StoreURL), Token: f.Token, RetryBudget: retryBudget})
	if err != nil {
		return nil, nil, err
	}
	// Closing a client only lets go of idle connections: it cannot fail.
	return client, func() { _ = client.Close() }, nil
}

// storeURL is the base URL of a store on the command line.
type storeURL string

// UnmarshalText reads a URL.
func (u *storeURL) UnmarshalText(text []byte) error {
	parsed, err := url.Parse(string(text))
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return fmt.Errorf("got %q, must be an http or https URL such as http://localhost:4747", redactURL(string(text)))
	}
	*u = storeURL(text)
	return nil
}

// redactURL hides the password of a URL.
func redactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
