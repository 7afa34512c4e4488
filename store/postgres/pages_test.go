package postgres_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/postgres"
)

// TestLaterPageReadsItself checks that a page in the middle of a long attempt is read without the spans before it and after it.
func TestLaterPageReadsItself(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	open(t, postgres.Config{URL: databaseURL})
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `INSERT INTO agl.spans (rollout_id, attempt_id, span_id, sequence_id, trace_id, name, start_time, checksum, payload)
		SELECT rollout, 'a', 's' || n, 0 + n, 't', 'call', 0::float8, 0, decode(repeat('00', 500), 'hex') FROM unnest('{r,other,third}'::text[]) rollout, generate_series(1, 5000) n`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `INSERT INTO agl.attempts (rollout_id, attempt_id, sequence_id, start_time, status) VALUES ('r', 'a', 1, 0, 'running')`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `ANALYZE agl.spans; SET search_path = agl`); err != nil {
		t.Fatal(err)
	}
	for _, attempt := range []string{"", "a", agl.LatestAttempt} {
		sql, args := postgres.LaterPage(agl.QuerySpansParams{RolloutID: "r", AttemptID: attempt, Paging: agl.Paging{Offset: 2500}}, 2500)
		var explained string
		if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) `+sql, args...).Scan(&explained); err != nil {
			t.Fatal(err)
		}
		type node struct {
			Rows  float64 `json:"Actual Rows"`
			Plans []node  `json:"Plans"`
		}
		var plans []struct {
			Plan node `json:"Plan"`
		}
		if err := json.Unmarshal([]byte(explained), &plans); err != nil {
			t.Fatal(err)
		}
		var most float64
		var look func(n node)
		look = func(n node) {
			most = max(most, n.Rows)
			for _, below := range n.Plans {
				look(below)
			}
		}
		look(plans[0].Plan)
		if most < 50 || most > 200 {
			t.Errorf("a page of 50 spans of attempt %q reads %s", attempt, fmt.Sprint(most, " rows:\n", explained))
		}
	}
}
