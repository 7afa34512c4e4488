package postgres_test

import (
	"context"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

// TestOlderSchema opens a database of the version before rollouts had labels.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	config := postgres.Config{URL: databaseURL}
	s := startEngine(t, config, nil)
	const many = 2500 // more than are labelled at once
	var rollouts []agl.EnqueueRollout
	for range many {
		rollouts = append(rollouts, agl.EnqueueRollout{Metadata: jsontext.Value(`{"run":"r\u0000","step":3,"group":1}`)})
	}
	rollouts = append(rollouts, agl.EnqueueRollout{})
	if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: rollouts}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`ALTER TABLE rollouts DROP COLUMN reward, DROP COLUMN run, DROP COLUMN step, DROP COLUMN labels`,
		`ALTER TABLE attempts DROP COLUMN reward, DROP COLUMN reward_priority, DROP COLUMN reward_sequence`,
		`DELETE FROM schema_version WHERE version = 5`,
	} {
		if err := postgrestest.Execute(t.Context(), databaseURL, sql); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, config)
	for _, l := range []agl.Label{{Name: "run", Value: "r\x00"}, {Name: "step", Value: "3"}, {Name: "group", Value: "1"}} {
		page, err := d.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Labels: []agl.Label{l}, Paging: agl.Paging{Limit: 1}})
		if err != nil || page.Total != many {
			t.Errorf("%v: %d rollouts, error %v, want %d", l, page.Total, err, many)
		}
	}
}
