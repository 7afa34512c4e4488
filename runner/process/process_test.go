package process_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestMain(m *testing.M) {
	if os.Getenv(reaperScript) != "" {
		if err := underReaper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// world runs agents on a store in memory.
type world struct {
	*testing.T

	store  agl.Store
	runner runner.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := memorytest.Open(t)
	return &world{T: t, store: s, runner: runner.Config{Store: s, GracePeriod: 10 * time.Second}}
}

func (w *world) agent(cfg process.Config) *process.Agent {
	w.Helper()
	cfg.TempDir = w.TempDir()
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	a, err := process.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		a.Close()
		left, err := os.ReadDir(cfg.TempDir)
		if err != nil || !cfg.Keep && len(left) > 0 {
			w.Errorf("%d folders are left behind, error %v", len(left), err)
		}
	})
	return a
}

func shell(script string) process.Config {
	return process.Config{
		Command: []string{"/bin/sh", "-c", script}, GracePeriod: 50 * time.Millisecond,
		Environ: []string{"PATH=" + os.Getenv("PATH"), "KEY=key"}, AllowEnv: []string{"KEY"},
	}
}

// outcome is how one attempt went.
type outcome struct {
	kind     agl.OutcomeKind
	message  string
	rewards  []agl.Reward
	messages map[string]string // by stream
}

var bundle = agl.Resources{
	{Name: "main prompt", Resource: agl.PromptTemplate{Template: "Answer {question}", Engine: agl.PromptFString}},
	{Name: "model", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: "http://127.0.0.1:1/v1/", Model: "tiny", APIKey: agl.Some("env:KEY")}}},
}

// step runs one rollout.
func (w *world) step(a agl.Agent, e agl.EnqueueRollout) outcome {
	w.Helper()
	cfg := w.runner
	cfg.Agent = a
	cfg.Flusher = flusher{}
	r, err := runner.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	if e.Input == nil {
		e.Input = jsontext.Value(`{"question":"why?"}`)
	}
	resources := bundle
	if e.ResourcesID.Valid {
		resources = nil
	}
	got, failure := r.Step(w.Context(), runner.StepParams{EnqueueRollout: e, Resources: resources})
	out := outcome{kind: agl.OutcomeOf(failure).Kind, messages: map[string]string{}}
	if failure != nil {
		out.message = failure.Error()
	}
	page, err := w.store.QuerySpans(w.Context(), agl.QuerySpansParams{RolloutID: got.RolloutID})
	if err != nil {
		w.Fatal(err)
	}
	for _, s := range page.Items {
		if stream, ok := s.Attributes.GetString(process.AttrStream); ok {
			out.messages[stream], _ = s.Attributes.GetString(agl.AttrMessageBody)
		}
		if rewards, err := adapter.Rewards(&s); err != nil {
			w.Error(err)
		} else if len(rewards) > 0 {
			out.rewards = rewards
		}
	}
	return out
}

// flusher stands for the proxy that nobody calls.
type flusher struct{}

func (flusher) FlushAttempt(context.Context, string, string) error { return nil }

func TestResults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script  string
		kind    agl.OutcomeKind
		rewards string
		message string // a part of it
	}{
		"exit 0":                         {`exit 0`, agl.OutcomeOK, "[]", ""},
		"exit 3":                         {`echo oh no >&2; exit 3`, agl.OutcomeAgentError, "[]", "exit status 3: oh no"},
		"a signal":                       {`kill -USR1 $$`, agl.OutcomeAgentError, "[]", "user defined signal 1"},
		"reward":                         {`echo '{"reward": 0.7}' >$AGL_RESULT_FILE`, agl.OutcomeOK, "[{primary 0.7}]", ""},
		"rewards in order":               {`echo '{"rewards": {"b": 1, "a": 0.3}}' >$AGL_RESULT_FILE`, agl.OutcomeOK, "[{b 1} {a 0.3}]", ""},
		"error":                          {`echo '{"error": "no key"}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", "the agent reports: no key"},
		"an empty error":                 {`echo '{"error": ""}'`, agl.OutcomeAgentError, "[]", "the agent reports: the agent gives no reason"},
		"no error":                       {`echo '{"error": "", "reward": 1}'`, agl.OutcomeOK, "[{primary 1}]", ""},
		"exit wins over result":          {`echo '{"reward": 1}' >$AGL_RESULT_FILE; exit 1`, agl.OutcomeAgentError, "[]", "exit status 1"},
		"error wins over reward":         {`echo '{"reward": 1, "error": "x"}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", "reports: x"},
		"last line":                      {`echo '{"reward": 9}'; echo '{"reward": 0.5, "note": "x"}'; echo`, agl.OutcomeOK, "[{primary 0.5}]", ""},
		"several lines":                  {`printf '{\n  "accuracy": 1,\n  "reward": 0.5,\n  "steps": [\n    {\n      "reward": 1\n    }\n  ]\n}\n'`, agl.OutcomeOK, "[{primary 0.5}]", ""},
		"several lines after others":     {`printf '{\n  "reward": 9\n}\n{\r\n\t"rewards": {"b": 1,\r\n"a": 0}\r\n}\r\n'`, agl.OutcomeOK, "[{b 1} {a 0}]", ""},
		"an error of several lines":      {`printf '{\n  "error": "no key"\n}\n'`, agl.OutcomeAgentError, "[]", "the agent reports: no key"},
		"a text in several lines":        {`printf '{\n  "reward": "high"\n}\n'`, agl.OutcomeAgentError, "[]", `last lines of standard output: reward: got "high", must be a finite number`},
		"several lines without":          {`printf '{"reward": 0.5}\n{\n  "accuracy": 1\n}\n'`, agl.OutcomeOK, "[{primary 0.5}]", ""},
		"several lines around a reward":  {`printf '{\n  "metrics": {\n    "reward": 0.3\n  },\n  "steps": [\n    {"reward": 1}\n  ]\n}\n'`, agl.OutcomeOK, "[]", ""},
		"long lines around a reward":     {`printf '{\n  "log": "'; head -c 2000000 /dev/zero | tr '\000' x; printf '",\n  "steps": [\n    {"reward": 1}\n  ]\n}\n'`, agl.OutcomeOK, "[]", ""},
		"several lines that are no JSON": {`printf '{"reward": 0.5}\nif (x)\n{\n  reward = 1;\n}\n'`, agl.OutcomeOK, "[{primary 0.5}]", ""},
		"a line follows":                 {`echo '{"reward": 9}'; echo bye`, agl.OutcomeOK, "[{primary 9}]", ""},
		"two, and a line":                {`echo '{"reward": 9}'; echo '{"reward": 8}'; echo bye`, agl.OutcomeAgentError, "[]", `2 lines report a reward, and the last line, "bye", is none of them`},
		"an error, and a line":           {`echo '{"error": "caught"}'; echo bye`, agl.OutcomeOK, "[]", ""},
		"in words":                       {`echo 'Reward: 0.7'`, agl.OutcomeOK, "[{primary 0.7}]", ""},
		"in words, quoted":               {`echo '"reward" = -1'`, agl.OutcomeOK, "[{primary -1}]", ""},
		"a long result":                  {longObject + `echo '", "reward": 1}'`, agl.OutcomeAgentError, "[]", "got a result of which the middle is lost, must have at most 524288 bytes"},
		"a long result after":            {`printf '{"reward": 1, "more": '; ` + longObject + `echo '"}}'`, agl.OutcomeAgentError, "[]", "got a result of which the middle is lost"},
		"a long result after a long log": {`head -c 1000000 /dev/zero | tr '\000' '\n'; ` + longObject + `echo '", "reward": 1}'`, agl.OutcomeAgentError, "[]", "got a result of which the middle is lost"},
		"a long error":                   {`printf '{"error": "'; head -c 2000000 /dev/zero | tr '\000' x; echo '"}'`, agl.OutcomeAgentError, "[]", "got a result of which the middle is lost"},
		"a long log without an error":    {longObject + `echo '", "error": null}'`, agl.OutcomeOK, "[]", ""},
		"long dimensions":                {longObject + `echo '", "rewards": {"a": 1, "b": 2}}'`, agl.OutcomeAgentError, "[]", "got a result of which the middle is lost"},
		"a long log":                     {longObject + `echo '", "steps": [{"reward": 1}]}'`, agl.OutcomeOK, "[]", ""},
		"a long log before":              {longObject + `echo '"}'; echo '{"reward": 1}'`, agl.OutcomeOK, "[{primary 1}]", ""},
		"a comparison in words":          {`echo 'reward: True'`, agl.OutcomeOK, "[{primary 1}]", ""},
		"a false one":                    {`echo 'reward=false'`, agl.OutcomeOK, "[{primary 0}]", ""},
		"words without a number":         {`echo 'reward: high'`, agl.OutcomeAgentError, "[]", `last line of standard output: got "reward: high", which has no finite number; must be a JSON object`},
		"words and NaN":                  {`echo 'reward: nan'`, agl.OutcomeAgentError, "[]", "which has no finite number"},
		"another case":                   {`echo '{"Reward": 0.7}'`, agl.OutcomeOK, "[{primary 0.7}]", ""},
		"both cases":                     {`echo '{"Reward": 0.7, "reward": 1}'`, agl.OutcomeAgentError, "[]", "given twice"},
		"true":                           {`echo '{"reward": true}'`, agl.OutcomeOK, "[{primary 1}]", ""},
		"no quotes":                      {`echo '{reward: 1}'`, agl.OutcomeAgentError, "[]", `got "{reward: 1}", which is not JSON; must be a JSON object with "reward", "rewards" or "error", such as {"reward": 0.7}`},
		"quotes of Python":               {`echo "{'answer': 'x', 'reward': 1}"`, agl.OutcomeAgentError, "[]", "which is not JSON"},
		"NaN of Python":                  {`echo '{"reward": NaN}'`, agl.OutcomeAgentError, "[]", `got "{\"reward\": NaN}", which is not JSON`},
		"no JSON, no reward":             {`echo '{done}'`, agl.OutcomeOK, "[]", ""},
		"text as a reward":               {`echo '{"reward": "good"}'`, agl.OutcomeAgentError, "[]", `last line of standard output: reward: got "good", must be a finite number`},
		"a number may be output":         {`echo 0.7`, agl.OutcomeOK, "[]", ""},
		"a number in the file":           {`echo 0.7 >$AGL_RESULT_FILE`, agl.OutcomeOK, "[{primary 0.7}]", ""},
		"words in the file":              {`echo done >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", `result file: got "done\n", must be a JSON object`},
		"a byte order mark":              {`printf '\357\273\277{"reward": 0.5}\r\n'`, agl.OutcomeOK, "[{primary 0.5}]", ""},
		"a byte order mark in the file":  {`printf '\357\273\277{"reward": 0.5}\r\n' >$AGL_RESULT_FILE`, agl.OutcomeOK, "[{primary 0.5}]", ""},
		"last line without":              {`echo '{"answer": 9}'`, agl.OutcomeOK, "[]", ""},
		"file before last line":          {`echo '{"reward": 9}'; echo '{"reward": 1}' >$AGL_RESULT_FILE`, agl.OutcomeOK, "[{primary 1}]", ""},
		"null is absent":                 {`echo '{"reward": 1, "error": null}' >$AGL_RESULT_FILE`, agl.OutcomeOK, "[{primary 1}]", ""},
		"NaN":                            {`echo '{"reward": NaN}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", "must be a JSON object"},
		"a string":                       {`echo '{"reward": "1"}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", `reward: got "1", must be a finite number`},
		"too large":                      {`echo '{"reward": 1e999}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", `must be a finite number`},
		"no dimension":                   {`echo '{"rewards": {}}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", "at least one dimension"},
		"nothing said":                   {`echo '{}' >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", `must be a JSON object with "reward", "rewards" or "error"`},
		"empty":                          {`: >$AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", "result file"},
		"a folder":                       {`mkdir $AGL_RESULT_FILE`, agl.OutcomeAgentError, "[]", "must be a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := w.step(w.agent(shell(test.script)), agl.EnqueueRollout{})
			if got.kind != test.kind || fmt.Sprint(got.rewards) != test.rewards || !strings.Contains(got.message, test.message) {
				t.Errorf("got %+v, want %s with rewards %s and %q", got, test.kind, test.rewards, test.message)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := shell(`env; echo "dir $PWD"; echo "file $(cat $AGL_TASK_FILE)"; echo "resources $(cat $AGL_RESOURCES_FILE)"`)
	cfg.Environ = []string{"PATH=" + os.Getenv("PATH"), "AGL_TOKEN=secret", "AGL_KEY=secret", "AGL_PROXY_KEYS=secret", "AGL_CURRENT_ROLE=runner", "AGL_MODE=stale", "AGL_EMIT_URL=http://stale", "OTEL_RESOURCE_ATTRIBUTES=agentlightning.rollout_id=stale,team=red,", "PLAIN=kept", "KEY=value-of-KEY", "OTHER_KEY=secret", "MINE=secret"}
	cfg.Env, cfg.Withhold = []string{"EXTRA=more", "MINE=given", "AGL_KEY=given"}, []string{"KEY", "OTHER_KEY", "MINE"}
	cfg.StoreURL = "http://127.0.0.1:4747/"
	cfg.SpanToken = func(_ context.Context, _, attemptID string) (string, error) { return "for-" + attemptID, nil }
	got := w.step(w.agent(cfg), agl.EnqueueRollout{Mode: agl.ModeVal, Metadata: jsontext.Value(`{"seed":9007199254740991}`)})
	env := map[string]string{}
	for line := range strings.Lines(got.messages["stdout"]) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			env[name] = value
		}
	}
	rollout, attempt := env["AGL_ROLLOUT_ID"], env["AGL_ATTEMPT_ID"]
	if rollout == "" || attempt == "" {
		t.Fatalf("no identity in %v", env)
	}
	base := "http://127.0.0.1:1/rollout/" + rollout + "/attempt/" + attempt
	for name, want := range map[string]string{
		"AGL_MODE": "val", "AGL_SEED": "9007199254740991", "AGL_TASK": `{"question":"why?"}`, "AGL_STORE_URL": "http://127.0.0.1:4747/",
		"AGL_PROMPT_MAIN_PROMPT": "Answer {question}", "AGL_MODEL": "tiny", "OPENAI_MODEL": "tiny",
		"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_BASE": base + "/v1", "ANTHROPIC_BASE_URL": base,
		"OPENAI_API_KEY": "value-of-KEY", "ANTHROPIC_API_KEY": "value-of-KEY", "ANTHROPIC_AUTH_TOKEN": "value-of-KEY",
		"AGL_EMIT_URL": base + "/v1/emit", "AGL_EMIT_KEY": "value-of-KEY",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4747", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20for-" + attempt,
		"OTEL_RESOURCE_ATTRIBUTES":   "team=red,agentlightning.rollout_id=" + rollout + ",agentlightning.attempt_id=" + attempt,
		"OTEL_METRICS_EXPORTER":      "none", "OTEL_LOGS_EXPORTER": "none", "PLAIN": "kept", "EXTRA": "more", "MINE": "given", "AGL_KEY": "given",
	} {
		if env[name] != want {
			t.Errorf("%s: got %q, want %q", name, env[name], want)
		}
	}
	for _, name := range []string{"AGL_TOKEN", "AGL_PROXY_KEYS", "AGL_CURRENT_ROLE", "KEY", "OTHER_KEY"} {
		if _, there := env[name]; there {
			t.Errorf("%s reaches the agent", name)
		}
	}
	if parts := strings.Split(env["TRACEPARENT"], "-"); len(parts) != 4 || len(parts[1]) != 32 || len(parts[2]) != 16 {
		t.Errorf("TRACEPARENT: got %q", env["TRACEPARENT"])
	}
	for _, want := range []string{`file {"question":"why?"}`, "resources " + string(bundle.AppendJSON(nil)), "/work\n"} {
		if !strings.Contains(got.messages["stdout"], want) {
			t.Errorf("output %s, want %q in it", got.messages["stdout"], want)
		}
	}
}

// Programs need not ask whether the model and the place for rewards require a key.
func TestNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	resources, err := w.store.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{
		{Name: "model", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: "http://127.0.0.1:1/v1", Model: "m"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := w.step(w.agent(shell(`echo "$OPENAI_API_KEY/$AGL_EMIT_KEY"`)), agl.EnqueueRollout{ResourcesID: agl.Some(resources.ResourcesID)})
	if got.messages["stdout"] != "none/none\n" {
		t.Errorf("got %+v", got)
	}
}

func TestLongTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	input := jsontext.Value(`"` + strings.Repeat("x", 200<<10) + `"`)
	cfg := shell(`[ -z "$AGL_TASK" ] && wc -c <$AGL_TASK_FILE`)
	cfg.Environ = append(cfg.Environ, `AGL_TASK="tried by hand"`)
	got := w.step(w.agent(cfg), agl.EnqueueRollout{Input: input})
	if got.kind != agl.OutcomeOK || strings.TrimSpace(got.messages["stdout"]) != strconv.Itoa(len(input)) {
		t.Errorf("got %+v, want %d bytes in the file and no variable", got, len(input))
	}
	const hint = "so it is not in AGL_TASK but only in the file that AGL_TASK_FILE names): cannot parse undefined"
	fails := w.agent(shell("echo cannot parse undefined >&2; exit 1"))
	if got := w.step(fails, agl.EnqueueRollout{Input: input}); !strings.Contains(got.message, hint) {
		t.Errorf("an agent that fails without its task: got %q, want %q in it", got.message, hint)
	}
	if got := w.step(fails, agl.EnqueueRollout{}); !strings.HasPrefix(got.message, "the agent ended with exit status 1: ") {
		t.Errorf("an agent that fails: got %q, want no hint", got.message)
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := shell(`echo first; head -c 300000 /dev/zero | tr '\0' y; echo; echo '{"reward": 1}'; echo warned >&2; printf '\377' >&2`)
	cfg.OutputBytes = 1000
	got := w.step(w.agent(cfg), agl.EnqueueRollout{})
	text := got.messages["stdout"]
	if !strings.HasPrefix(text, "first\ny") || !strings.HasSuffix(text, "y\n{\"reward\": 1}\n") ||
		!strings.Contains(text, "bytes are left out here") || len(text) > 1100 {
		t.Errorf("got %d bytes of output: %.40q … %q", len(text), text, text[max(len(text)-40, 0):])
	}
	if got.messages["stderr"] != "warned\n\uFFFD" {
		t.Errorf("standard error: got %q", got.messages["stderr"])
	}
	if fmt.Sprint(got.rewards) != "[{primary 1}]" {
		t.Errorf("rewards %v", got.rewards)
	}
}

func TestFailedOutputIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.step(w.agent(shell(`echo so far; echo broken >&2; exit 1`)), agl.EnqueueRollout{})
	if want := map[string]string{"stdout": "so far\n", "stderr": "broken\n"}; !maps.Equal(got.messages, want) {
		t.Errorf("got %v, want %v", got.messages, want)
	}
}

// The error of a crash names the exception, although Node writes all its members behind it.
func TestLongCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.step(w.agent(shell(`exec >&2; echo started; echo 'APIError [AI_APIError]: no such tool'; head -c 9000 /dev/zero | tr '\0' ' '; echo '}'; exit 1`)), agl.EnqueueRollout{})
	if !strings.Contains(got.message, "exit status 1: APIError [AI_APIError]: no such tool\n…\n") || !strings.HasSuffix(got.message, "}") || len(got.message) > 2300 {
		t.Errorf("got %d bytes: %.200q", len(got.message), got.message)
	}
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		limit  time.Duration // of the agent
		config agl.RolloutConfig
	}{
		"the agent's":   {script: `sleep 60`, limit: 50 * time.Millisecond},
		"the rollout's": {script: `sleep 60`, config: agl.RolloutConfig{TimeoutSeconds: agl.Some(0.05)}},
		"deaf":          {script: `trap "" TERM; while :; do sleep 0.01; done`, limit: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := shell(test.script)
			cfg.Timeout = test.limit
			got := w.step(w.agent(cfg), agl.EnqueueRollout{Config: &test.config})
			if got.kind != agl.OutcomeTimeout {
				t.Errorf("got %+v, want the outcome timeout", got)
			}
		})
	}
}

func TestTermIsHeard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ready := filepath.Join(t.TempDir(), "ready")
	cfg := shell(`trap 'echo saved; exit 0' TERM; : >"$READY"; while :; do sleep 0.01; done`)
	cfg.Env, cfg.GracePeriod = []string{"READY=" + ready}, time.Minute
	for cfg.Timeout = 200 * time.Millisecond; ; cfg.Timeout *= 2 { // until the shell has set its trap in time
		got := w.step(w.agent(cfg), agl.EnqueueRollout{})
		if _, err := os.Stat(ready); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if got.kind != agl.OutcomeTimeout || got.messages["stdout"] != "saved\n" {
			t.Errorf("got %+v, want the agent's last words", got)
		}
		return
	}
}

// TestHurry: who is in a hurry does not wait for the grace period.
func TestHurry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hurry := make(chan struct{})
	close(hurry)
	cfg := shell(`trap 'echo heard' TERM; while :; do sleep 0.01; done`)
	cfg.Timeout, cfg.GracePeriod, cfg.Hurry = 100*time.Millisecond, time.Hour, hurry
	if got := w.step(w.agent(cfg), agl.EnqueueRollout{}); got.kind != agl.OutcomeTimeout {
		t.Errorf("got %+v, want the outcome timeout", got)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := shell(`ulimit -v; x=$(head -c 200000000 /dev/zero | tr '\0' y); echo ${#x}`)
	cfg.MemoryBytes = 100 << 20
	got := w.step(w.agent(cfg), agl.EnqueueRollout{})
	if got.kind != agl.OutcomeAgentError || !strings.HasPrefix(got.messages["stdout"], strconv.Itoa(100<<10)+"\n") {
		t.Errorf("got %+v, want a failure under the limit", got)
	}
}

func TestDirAndKeep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := shell(`pwd; echo kept >$AGL_RESULT_FILE.note`)
	cfg.Dir, cfg.Keep = t.TempDir(), true
	got := w.step(w.agent(cfg), agl.EnqueueRollout{})
	if strings.TrimSpace(got.messages["stdout"]) != cfg.Dir {
		t.Errorf("got %+v, want it to run in %s", got, cfg.Dir)
	}
	notes, err := filepath.Glob(filepath.Join(filepath.Dir(cfg.Dir), "*", "agl-*", "result.json.note"))
	if err != nil || len(notes) != 1 {
		t.Errorf("kept files %v, error %v, want one", notes, err)
	}
}

// Resources choose the endpoint that a key is sent to, so they do not choose the key.
func TestKeysThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"OTHER":     `environment variable OTHER, which this runner does not allow; allowed by --allow-env, or allow_env in a run file: ["KEY" "AGL_TOKEN" "UNSET"]`,
		"AGL_TOKEN": "environment variable AGL_TOKEN, which this runner does not allow",
		"UNSET":     "environment variable UNSET, which is not set in the runner's environment",
	} {
		w := newWorld(t)
		cfg := shell("env")
		cfg.Environ = append(cfg.Environ, "OTHER=other", "AGL_TOKEN=secret")
		cfg.AllowEnv = append(cfg.AllowEnv, "AGL_TOKEN", "UNSET")
		resources, err := w.store.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{
			{Name: "model", Resource: agl.LLM{Endpoint: "http://127.0.0.1:1", Model: "m", APIKey: agl.Some("env:" + name)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := w.step(w.agent(cfg), agl.EnqueueRollout{ResourcesID: agl.Some(resources.ResourcesID)})
		if got.kind != agl.OutcomeSetupError || !strings.Contains(got.message, want) || got.messages["stdout"] != "" {
			t.Errorf("env:%s: got %q, %q and the output %q, want a setup error with %q", name, got.kind, got.message, got.messages["stdout"], want)
		}
	}
}

func TestRelativeProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agent.sh"), []byte("#!/bin/sh\necho here\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := w.step(w.agent(process.Config{
		Command: []string{"./agent.sh"}, Dir: dir, Environ: []string{"PATH=" + os.Getenv("PATH"), "KEY=key"}, AllowEnv: []string{"KEY"},
	}), agl.EnqueueRollout{})
	if got.messages["stdout"] != "here\n" {
		t.Errorf("got %+v", got)
	}
}

// Variables that are too long for the system are named, and no reason for a process that is kept.
func TestLongVariables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prompts := slices.Clone(bundle)
	for i := range 150 {
		prompts = append(prompts, agl.NamedResource{Name: fmt.Sprint("p", i), Resource: agl.PromptTemplate{Template: strings.Repeat("x", 60<<10), Engine: agl.PromptFString}})
	}
	resources, err := w.store.AddResources(t.Context(), agl.AddResourcesParams{Resources: prompts})
	if err != nil {
		t.Fatal(err)
	}
	task := agl.EnqueueRollout{ResourcesID: agl.Some(resources.ResourcesID)}
	if got := w.step(w.agent(shell("")), task); got.kind != agl.OutcomeSetupError || !strings.Contains(got.message, "too long for this system: with --keepalive stdio") {
		t.Errorf("got %s: %s", got.kind, got.message)
	}
	if got := w.step(w.agent(stdioAgent(`echo '{"reward": 1}'`)), task); got.kind != agl.OutcomeOK {
		t.Errorf("with keepalive: got %s: %s", got.kind, got.message)
	}
}

// A script that the system cannot start says why.
func TestScriptWithoutInterpreter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"#!/bin/sh\r\necho\n": `no program as its first line says, "#!/bin/sh\r"`,
		"#!/no/such\necho\n":  `no program as its first line says, "#!/no/such"`,
		"echo\n":              "no script whose first line begins with #!",
	} {
		w := newWorld(t)
		program := filepath.Join(t.TempDir(), "agent")
		// Written by another process: a file that this one has open cannot be started by a child that begins meanwhile.
		if err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `printf %s "$1" >"$2" && chmod 700 "$2"`, "sh", text, program).Run(); err != nil {
			t.Fatal(err)
		}
		cfg := shell("")
		cfg.Command = []string{program}
		if got := w.step(w.agent(cfg), agl.EnqueueRollout{}); got.kind != agl.OutcomeSetupError || !strings.Contains(got.message, want) {
			t.Errorf("%q: got %+v, want a setup error with %q", text, got, want)
		}
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]process.Config{
		"Command: empty":               {},
		"executable file not found":    {Command: []string{"no-such-program-anywhere"}},
		"Timeout: got -1":              {Command: []string{"true"}, Timeout: -1},
		`Keepalive: got "http"`:        {Command: []string{"true"}, Keepalive: "http"},
		`Command: got "a\x00"`:         {Command: []string{"true", "a\x00"}},
		`Env: got "X=\x00", must have`: {Command: []string{"true"}, Env: []string{"X=\x00"}},
		`Env: got "X", must be NAME`:   {Command: []string{"true"}, Env: []string{"X"}},
		"Dir: stat /no/such":           {Command: []string{"true"}, Dir: "/no/such"},
		"MemoryBytes: got -5":          {Command: []string{"true"}, MemoryBytes: -5},
	} {
		if _, err := process.New(cfg); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// survivors returns the processes whose command line holds a mark.
func survivors(t *testing.T, mark string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), mark) {
			out = append(out, path)
		}
	}
	return out
}

// unique is a duration for sleep(1) that no other process has.
func unique(t *testing.T) string {
	t.Helper()
	sum := base64.StdEncoding.EncodeToString([]byte(t.Name()))
	n := 0
	for _, c := range sum {
		n = (n*31 + int(c)) % 1_000_000
	}
	return fmt.Sprintf("86400.%06d%d", n, os.Getpid())
}

func TestGroupDoesNotSurvive(t *testing.T) {
	t.Parallel()
	mark := unique(t)
	w := newWorld(t)
	// The grandchild holds the output open, too.
	got := w.step(w.agent(shell(`sleep `+mark+` & echo '{"reward": 1}'`)), agl.EnqueueRollout{})
	if got.kind != agl.OutcomeOK || fmt.Sprint(got.rewards) != "[{primary 1}]" {
		t.Errorf("got %+v", got)
	}
	if left := survivors(t, mark); len(left) > 0 {
		t.Errorf("%v survived", left)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := shell(`echo '{"reward": 1}' >$AGL_RESULT_FILE`)
	agent := w.agent(cfg)
	const n = 128
	if _, err := w.store.AddResources(t.Context(), agl.AddResourcesParams{Resources: bundle}); err != nil {
		t.Fatal(err)
	}
	tasks := make([]agl.EnqueueRollout, n)
	for i := range tasks {
		tasks[i].Input = jsontext.Value(strconv.Itoa(i))
	}
	if _, err := w.store.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: tasks}); err != nil {
		t.Fatal(err)
	}
	run := w.runner
	run.Agent, run.Flusher, run.Workers, run.MaxRollouts = agent, flusher{}, 64, n
	r, err := runner.New(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
	if err != nil || page.Total != n {
		t.Errorf("%d of %d succeeded, error %v", page.Total, n, err)
	}
}
