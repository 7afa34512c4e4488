package main

import (
	"strings"
	"testing"
)

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	const shared, processes = "shared-memory", "client-server"
	for want, o := range map[string]options{
		"--steps: got 0":                       {Runners: 1, Strategy: shared},
		"--runners: got 0":                     {Steps: 1, Strategy: shared},
		"--store: got http://agl:xxxxx@h with": {Steps: 1, Runners: 1, Strategy: shared, Store: "http://agl:s3cret@h"},
		"--store: got ftp://agl:xxxxx@h":       {Steps: 1, Runners: 1, Strategy: processes, Store: "ftp://agl:s3cret@h"},
		"--engine: got ftp://agl:xxxxx@h":      {Steps: 1, Runners: 1, Strategy: shared, Engine: "ftp://agl:s3cret@h"},
		"--engine: got ,":                      {Steps: 1, Runners: 1, Strategy: shared},
		`--db: got "x.db"`:                     {Steps: 1, Runners: 1, Strategy: shared, Engine: engineEmbedded, DB: "x.db"},
		"--summary: got /no/where":             {Steps: 1, Runners: 1, Strategy: shared, Engine: engineHTTP, DB: "memory:", Summary: "/no/where/s.json"},
	} {
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error is %v, want %q in it", o, err, want)
		}
	}
	for _, row := range []struct{ strategy, name, value, want string }{
		{shared, "AGL_CURRENT_ROLE", "runner", "AGL_CURRENT_ROLE: got runner"},
		{processes, "AGL_SERVER_PORT", "x", `AGL_SERVER_PORT: got "x"`},
	} {
		getenv := func(name string) string {
			if name == row.name {
				return row.value
			}
			return ""
		}
		if err := (options{Strategy: row.strategy}).validateRole(getenv); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s=%s: error is %v, want %q in it", row.name, row.value, err, row.want)
		}
	}
}
