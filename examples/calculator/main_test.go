package main

import (
	"strings"
	"testing"
	"time"
)

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	const shared, processes = "shared-memory", "client-server"
	for want, o := range map[string]options{
		"--steps: got 0":                       {Runners: 1, Strategy: shared},
		"--trainer: got -1s":                   {Steps: 1, WarmStart: 1, Trainer: -time.Second, Runners: 1, Strategy: shared},
		"--warm-start: got 0":                  {Steps: 1, Runners: 1, Strategy: shared},
		"--runners: got 0":                     {Steps: 1, WarmStart: 1, Strategy: shared},
		"--store: got http://agl:xxxxx@h with": {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared, Store: "http://agl:s3cret@h"},
		"--store: got ftp://agl:xxxxx@h":       {Steps: 1, WarmStart: 1, Runners: 1, Strategy: processes, Store: "ftp://agl:s3cret@h"},
		"--engine: got ftp://agl:xxxxx@h":      {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared, Engine: "ftp://agl:s3cret@h"},
		"--engine: got ,":                      {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared},
		`--db: got "x.db"`:                     {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared, Engine: engineEmbedded, DB: "x.db"},
		"--summary: got /no/where":             {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared, Engine: engineHTTP, DB: "memory:", Summary: "/no/where/s.json"},
		"--questions: got 3, must divide 16":   {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared, Engine: engineHTTP, DB: "memory:", Questions: 3},
		"--validate: got -1":                   {Steps: 1, WarmStart: 1, Runners: 1, Strategy: shared, Engine: engineHTTP, DB: "memory:", Questions: 1, Validate: -1},
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

func TestSheets(t *testing.T) {
	t.Parallel()
	lines := []byte(`{"question":"1 plus 1","form":"plus","answer":"2"}
{"question":"2 plus 2","form":"plus","answer":"4"}
{"question":"3 times 3","form":"times","answer":"9"}
`)
	for n, want := range map[int]string{
		1: string(lines),
		2: `{"question":"1 plus 1","form":"plus","answer":"2","more":[{"question":"2 plus 2","form":"plus","answer":"4"}]}
{"question":"3 times 3","form":"times","answer":"9"}
`,
	} {
		if got, err := sheets(lines, n); err != nil || string(got) != want {
			t.Errorf("sheets of %d: got %s, %v; want %s", n, got, err, want)
		}
	}
	if _, err := sheets([]byte("{\n"), 2); err == nil {
		t.Error("a line that is not JSON is no error")
	}
}
