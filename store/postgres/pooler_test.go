package postgres_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/postgres"
)

// TestPooler: a pooler that assigns sessions is as good as the database itself; what one is told at the start of a connection, it
// refuses. One that assigns transactions is refused.
func TestPooler(t *testing.T) {
	t.Parallel()
	for mode, works := range map[string]bool{"session": true, "transaction": false, "statement": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct := fresh(t)
			u, err := url.Parse(direct)
			if err != nil {
				t.Fatal(err)
			}
			pooled := server.Server(t).StartPooler(t, mode)(strings.TrimPrefix(u.Path, "/"))
			config := postgres.Config{URL: pooled, MaxConns: 4, PollInterval: time.Hour}
			if !works {
				want := map[string]string{"transaction": "must assign whole sessions", "statement": "statement pooling"}[mode]
				d, err := postgres.Open(t.Context(), config)
				if err == nil {
					t.Fatal(errors.Join(errors.New("it was opened"), d.Close(t.Context())))
				}
				db, forOperators := postgres.OpenDatabase(t.Context(), pooled)
				if forOperators == nil {
					t.Fatal(errors.Join(errors.New("it was opened for operators"), db.Close()))
				}
				if !strings.Contains(err.Error(), want) || !strings.Contains(forOperators.Error(), want) {
					t.Errorf("got %v, and for operators %v, want %s", err, forOperators, want)
				}
				return
			}
			a, b := engine(t, config), engine(t, postgres.Config{URL: direct, MaxConns: 4, PollInterval: time.Hour})
			claimed := make(chan int, 1)
			go func() {
				got, err := a.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: patience})
				if err != nil {
					t.Error(err)
				}
				claimed <- len(got.Rollouts)
			}()
			enqueue(t, b, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
			if got := <-claimed; got != 1 {
				t.Errorf("a server behind the pooler claimed %d of the rollout that another enqueued", got)
			}
			conn, err := pgx.Connect(t.Context(), direct)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			var schemas string
			if err := conn.QueryRow(t.Context(), `SELECT string_agg(schemaname, ' ') FROM pg_tables WHERE tablename = 'rollouts'`).Scan(&schemas); err != nil || schemas != "agl" {
				t.Errorf("the tables are in %q, %v", schemas, err)
			}
		})
	}
}
