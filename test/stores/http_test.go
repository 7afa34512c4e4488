// Package stores_test runs the suite of every store over HTTP on PostgreSQL,
// which takes longer than unit tests may.
package stores_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
	"github.com/agl-go/agl/store/storetest"
)

// database is one PostgreSQL for all tests, which have databases of their own.
var database = postgrestest.Shared{Config: postgrestest.Stores()}

func TestMain(m *testing.M) {
	code := database.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestPostgresOverHTTP runs the suite over the client, the server and the
// engine.
func TestPostgresOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB, _ storetest.OpenParams) storetest.Instance {
		tb.Helper()
		driver, err := postgres.Open(tb.Context(), postgres.Config{URL: database.Database(tb)})
		if err != nil {
			tb.Fatal(err)
		}
		clock := storetest.NewManualClock(time.Now())
		engine, err := store.New(tb.Context(), store.Config{Driver: driver, Clock: clock})
		if err != nil {
			tb.Fatal(errors.Join(err, driver.Close(tb.Context())))
		}
		server, err := server.New(server.Config{Store: engine})
		if err != nil {
			tb.Fatal(err)
		}
		web := httptest.NewServer(server)
		client, err := client.New(client.Config{URL: web.URL, Transport: &http.Transport{MaxIdleConnsPerHost: 64}})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			server.Drain()
			err := client.Close()
			web.Close()
			if err := errors.Join(err, engine.Close(context.WithoutCancel(tb.Context()))); err != nil {
				tb.Error(err)
			}
		})
		return storetest.Instance{Store: client, Advance: clock.Advance}
	})
}
