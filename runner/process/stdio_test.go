package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/runner/process"
)

func TestKeepalive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent := w.agent(stdioAgent(`echo "log of $$"; echo '{"reward": 0.25}'`))
	first := w.step(agent, agl.EnqueueRollout{})
	second := w.step(agent, agl.EnqueueRollout{})
	for _, got := range []outcome{first, second} {
		if got.kind != agl.OutcomeOK || fmt.Sprint(got.rewards) != "[{primary 0.25}]" {
			t.Fatalf("got %+v", got)
		}
	}
	if log := first.messages["stdout"]; !strings.HasPrefix(log, "log of ") || log != second.messages["stdout"] {
		t.Errorf("logs %q and %q, want both from one process", log, second.messages["stdout"])
	}
}

// Without Config.Dir each kept process has a working directory of its own, which is gone when it has ended (see world.agent).
func TestKeepaliveWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent := w.agent(stdioAgent(`ls -A; pwd; touch mine; echo '{"reward": 1}'; exit`))
	first, second := w.step(agent, agl.EnqueueRollout{}), w.step(agent, agl.EnqueueRollout{})
	for _, got := range []string{first.messages["stdout"], second.messages["stdout"]} {
		if strings.Count(got, "\n") != 1 || !strings.Contains(got, "agl-kept-") {
			t.Errorf("got %q, want an empty folder", got)
		}
	}
	if first.messages["stdout"] == second.messages["stdout"] {
		t.Errorf("two processes have the folder %q", first.messages["stdout"])
	}
}

// A program on Windows begins its output with a byte order mark, which is not a part of its first reply.
func TestKeepaliveByteOrderMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.step(w.agent(stdioAgent(`printf '\357\273\277{"reward": 1}\r\n'; exit`)), agl.EnqueueRollout{})
	if got.kind != agl.OutcomeOK || fmt.Sprint(got.rewards) != "[{primary 1}]" {
		t.Errorf("got %+v", got)
	}
}

// What a kept process writes to standard error before its reply is the attempt's, however soon the next one begins.
func TestKeepaliveStandardError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent := w.agent(stdioAgent(`n=$((n+1)); head -c 60000 /dev/zero | tr '\0' . >&2; echo "task $n" >&2; echo '{"reward": 1}'`))
	for n := range 20 {
		text := strings.TrimLeft(w.step(agent, agl.EnqueueRollout{}).messages["stderr"], ".")
		if want := fmt.Sprintf("task %d\n", n+1); text != want {
			t.Errorf("got %q, want %q", text, want)
		}
	}
}

// A kept process that ends while nobody needs it leaves nothing behind, although no
// attempt follows that would find it.
func TestKeepaliveEndsWhileIdle(t *testing.T) {
	t.Parallel()
	mark := unique(t)
	w := newWorld(t)
	got := w.step(w.agent(stdioAgent(`sleep `+mark+` & echo '{"reward": 1}'; exit 0`)), agl.EnqueueRollout{})
	if got.kind != agl.OutcomeOK {
		t.Fatalf("got %+v", got)
	}
	deadline := time.Now().Add(20 * time.Second)
	for left := survivors(t, mark); len(left) > 0; left = survivors(t, mark) {
		if time.Now().After(deadline) {
			t.Fatalf("%v survived", left)
		}
	}
}

// stdioAgent is a kept agent that runs a script for every task, which is in
// $line.
func stdioAgent(script string) process.Config {
	cfg := shell(`while IFS= read -r line; do ` + script + `; done`)
	cfg.Keepalive = process.KeepaliveStdio
	return cfg
}

func TestKeepaliveGetsTheTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.step(w.agent(stdioAgent(`printf 'got %s\n' "$line"; echo '{}'`)), agl.EnqueueRollout{Mode: agl.ModeTrain})
	line, found := strings.CutPrefix(got.messages["stdout"], "got ")
	var task process.StdioTask
	if err := rawjson.Unmarshal([]byte(line), &task); !found || err != nil {
		t.Fatalf("got %+v, error %v", got, err)
	}
	if task.Mode != "train" || string(task.Task) != `{"question":"why?"}` || task.RolloutID == "" ||
		task.Env["AGL_ATTEMPT_ID"] != task.AttemptID || task.Env["OPENAI_API_KEY"] != "key" {
		t.Errorf("got task %+v", task)
	}
}

// longObject prints the beginning of an object that is longer than a result may be.
const longObject = `printf '{"trace": "'; head -c 2000000 /dev/zero | tr '\000' x; `

// A long line is ordinary output if no reward is a member of it, but only of what it holds.
func TestKeepaliveLongLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent := w.agent(stdioAgent(longObject + `echo '", "steps": [{"reward": 1}]}'; echo '{"reward": 1}'`))
	for range 2 {
		if got := w.step(agent, agl.EnqueueRollout{}); got.kind != agl.OutcomeOK || fmt.Sprint(got.rewards) != "[{primary 1}]" {
			t.Errorf("got %s %v: %s", got.kind, got.rewards, got.message)
		}
	}
}

func TestKeepaliveFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script  string
		kind    agl.OutcomeKind
		message string
	}{
		"crash":               {`echo dying >&2; exit 4`, agl.OutcomeAgentError, "exit status 4: dying"},
		"ends without a word": {`exit 0`, agl.OutcomeAgentError, "without a reply"},
		"error":               {`echo '{"error": "no"}'`, agl.OutcomeAgentError, "reports: no"},
		"bad reward":          {`echo '{"reward": "x"}'`, agl.OutcomeAgentError, "must be a finite number"},
		"another's reply":     {`echo '{"attempt_id": "at-other", "reward": 1}'; echo done; exit 0`, agl.OutcomeAgentError, `its attempt_id is "at-other", must be "at-`},
		"another's, and time": {`echo '{"attempt_id": "at-other", "reward": 1}'; began; sleep 60`, agl.OutcomeTimeout, `within LIMIT; it printed "{\"attempt_id\": \"at-other\", \"reward\": 1}", but its attempt_id`},
		"no result":           {`echo ' 0.5'; began; sleep 60`, agl.OutcomeTimeout, `it printed "0.5", but a reply is a JSON object with "reward"`},
		"a long reply":        {longObject + `echo '", "reward": 1}'`, agl.OutcomeAgentError, "a line of more than 1048576 bytes"},
		"a long named reply":  {`printf '{"attempt_id": "'; printf '%s' "$line" | sed 's/.*"attempt_id":"\([^"]*\)".*/\1/'; printf '", "reward": 1, "more": '; ` + longObject + `echo '"}}'`, agl.OutcomeAgentError, "a line of more than 1048576 bytes"},
		"closed output":       {`exec >&-; sleep 60`, agl.OutcomeAgentError, "closed its standard output without a reply"},
		"no end of the line":  {`printf '{"reward": 1}'; began; sleep 60`, agl.OutcomeTimeout, `it printed "{\"reward\": 1}" without the end of the line`},
		"silence":             {`began; sleep 60`, agl.OutcomeTimeout, "did not reply with a line of JSON within LIMIT; nothing was on its standard output, where a reply must be flushed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := stdioAgent(`began() { echo >>"$BEGAN"; }; if [ -e "$FLAG" ]; then began; echo '{"reward": 1}'; else : >"$FLAG"; ` + test.script + `; fi`)
			cfg.Timeout = time.Minute
			if test.kind == agl.OutcomeTimeout {
				cfg.Timeout = time.Second
			}
			for ; ; cfg.Timeout *= 2 { // until each process has begun in time
				dir := t.TempDir()
				cfg.Env = []string{"FLAG=" + filepath.Join(dir, "flag"), "BEGAN=" + filepath.Join(dir, "began")}
				agent := w.agent(cfg)
				failed, after := w.step(agent, agl.EnqueueRollout{}), w.step(agent, agl.EnqueueRollout{})
				if began, _ := os.ReadFile(filepath.Join(dir, "began")); test.kind == agl.OutcomeTimeout && len(began) < 2 && cfg.Timeout < time.Minute {
					continue
				}
				if want := strings.Replace(test.message, "LIMIT", cfg.Timeout.String(), 1); failed.kind != test.kind || !strings.Contains(failed.message, want) {
					t.Errorf("got %+v, want %s with %q", failed, test.kind, want)
				}
				if after.kind != agl.OutcomeOK || fmt.Sprint(after.rewards) != "[{primary 1}]" {
					t.Errorf("the attempt after it: got %+v", after)
				}
				return
			}
		})
	}
}
