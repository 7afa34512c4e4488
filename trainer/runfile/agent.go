package runfile

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer/keys"
)

// namePattern matches the names of environment variables.
const namePattern = `^[A-Za-z_][A-Za-z0-9_]*$`

func (d *draft) agent(a *Agent) yamlfile.Value {
	key := yamlfile.Key
	p := &a.Process
	var workspace bool
	var environ []yamlfile.Entry[string]
	command := key("command", "The program and its arguments. No shell reads them.", yamlfile.Command(&p.Command).
		Must(`a list such as [python, agent.py]; where a shell is wanted, [sh, -c, "…"]`))
	if !d.noAgent {
		command = command.Required(", such as [python, agent.py]")
	}
	return yamlfile.Mapping(
		command,
		key("concurrency", "Rollouts that run at the same time.", yamlfile.Integer(&a.Concurrency, yamlfile.Min(1), yamlfile.Max(runner.MaxWorkers))).Default(4),
		key("timeout", "Ends an attempt that takes longer.",
			yamlfile.Via(yamlfile.Duration, func(t time.Duration) { a.Rollout.TimeoutSeconds = agl.Some(t.Seconds()) })).Default("10m"),
		key("unresponsive", "Ends an attempt whose runner has sent no heartbeat for this time. By default grpo, sft and apo end it after 5m.",
			yamlfile.Via(yamlfile.Duration, func(t time.Duration) { a.Rollout.UnresponsiveSeconds = agl.Some(t.Seconds()) })),
		key("attempts", "Attempts of a rollout, the first included.", yamlfile.Integer(&a.Rollout.MaxAttempts, yamlfile.Min(1))).Default(1),
		key("retry_on", "Statuses of an attempt after which it is retried; by default all three.",
			yamlfile.List(&a.Rollout.RetryCondition, func(status *agl.AttemptStatus) yamlfile.Value { return yamlfile.Words(status, retryable()...) })),
		key("grace", "Time between SIGTERM and SIGKILL when a program must end; 0 is none.", keys.Grace(&p.GracePeriod)).Default("5s"),
		key("cwd", "The program's working directory; by default the folder of this file.", yamlfile.Path(&p.Dir)),
		key("workspace", "Gives each attempt, or with keepalive each process, a new working directory, which is removed afterwards.", yamlfile.Bool(&workspace)).Default(false),
		key("keep", "Does not remove the files of attempts.", yamlfile.Bool(&p.Keep)).Default(false),
		key("keepalive", "stdio reuses processes: each gets a task as a line of JSON and answers with a line.",
			yamlfile.Word(&p.Keepalive, map[string]process.Keepalive{"none": process.KeepaliveNone, "stdio": process.KeepaliveStdio})).Default("none"),
		key("max_idle", "Idle processes that are kept.", yamlfile.Integer(&p.MaxIdle, yamlfile.Min(1))).Default(64),
		key("memory", "Limits the address space of each process; 0 is no limit.", yamlfile.SizeOrZero(&p.MemoryBytes)).Default(0),
		key("output", "How much of each output stream of an attempt is recorded.", yamlfile.Size(&p.OutputBytes)).Default("1MiB"),
		key("env", "Further environment variables of the program.", yamlfile.Map(&environ, "the name of a variable", namePattern, yamlfile.Text)),
		key("allow_env", "Environment variables that resources may name as the model's API key, env:NAME.", yamlfile.List(&p.AllowEnv, yamlfile.Text)),
	).Check(func(s *yamlfile.Scope) {
		for _, v := range environ {
			p.Env = append(p.Env, v.Name+"="+v.Value)
		}
		if s.Given("retry_on") && a.Rollout.MaxAttempts <= 1 {
			s.Failf("retry_on", "given, but attempts is 1, must be at least 2")
		}
		if a.Rollout.MaxAttempts > 1 && !s.Given("retry_on") {
			a.Rollout.RetryCondition = retryable()
		}
		switch {
		case workspace && s.Given("cwd"):
			s.Failf("workspace", "given together with cwd, must be one of them")
		case !s.Given("cwd"):
			p.Dir = d.dir
		}
		if s.Clean() {
			d.program(s, p, workspace)
		}
	})
}

// retryable returns the statuses of an attempt after which it can be retried.
func retryable() []agl.AttemptStatus {
	return []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive}
}

// program checks that the program, if there is one, and its folder exist.
func (d *draft) program(s *yamlfile.Scope, p *process.Config, workspace bool) {
	if len(p.Command) == 0 {
		return
	}
	if program := p.Command[0]; strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		p.Command[0] = filepath.Join(p.Dir, program) // a workspace does not contain the program
	}
	switch info, err := os.Stat(p.Dir); {
	case d.noAgent:
	case err != nil || !info.IsDir():
		s.Failf("cwd", "there is no folder %s", p.Dir)
	default:
		agent, err := process.New(*p)
		if missing, ok := errors.AsType[*exec.Error](err); ok {
			err = missing
		}
		if err != nil {
			s.FailAt("command", err)
			return
		}
		agent.Close()
		if script := scriptOf(p.Command); script != "" && (filepath.IsAbs(script) || !workspace) {
			if !filepath.IsAbs(script) {
				script = filepath.Join(p.Dir, script)
			}
			if _, err := os.Stat(script); errors.Is(err, fs.ErrNotExist) {
				s.Failf("command", "%s starts %s, and there is no such file", p.Command[0], script)
			}
		}
	}
	if workspace {
		p.Dir = ""
	}
}

// scriptOf returns the script that a command starts by an interpreter; empty if there
// is none. Other programs may look for a file elsewhere, such as in a container.
func scriptOf(command []string) string {
	switch strings.TrimRight(strings.TrimSuffix(filepath.Base(command[0]), ".exe"), "0123456789.") {
	case "python", "pypy", "node", "deno", "bun", "ruby", "perl", "php", "lua", "Rscript", "tsx", "go", "sh", "bash", "dash", "zsh":
	default:
		return ""
	}
	for _, arg := range command[1:] {
		switch filepath.Ext(arg) {
		case ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".go", ".sh", ".rb", ".pl", ".php", ".lua", ".R":
			if !strings.ContainsAny(arg, " \t\n") {
				return arg
			}
		}
	}
	return ""
}
