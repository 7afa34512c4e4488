package process

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpproxy"
)

// markVariable identifies the process that an agent's children descend from: everything that the process starts
// inherits it.
const markVariable = "AGL_PROCESS_ID"

// maxVariable is the longest value that is passed in a variable. Systems limit them (Linux to 128 KiB); longer values
// are passed in files.
const maxVariable = 64 << 10

// metadataSeed is the metadata key of a rollout's seed. An agent that samples with it makes a run repeatable.
const metadataSeed = "seed"

// variableName returns a resource's name as a part of a variable's name.
func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
}

// variables are a list of NAME=VALUE.
type variables []string

func (v *variables) add(name, value string) {
	// A program cannot be started with a NUL in a variable.
	if value != "" && !strings.ContainsRune(value, 0) {
		*v = append(*v, name+"="+value)
	}
}

// longTaskHint is added to the error of a failed program whose task is too long for AGL_TASK, where it may have looked; else it is empty.
func (v variables) longTaskHint() string {
	if slices.ContainsFunc(v, func(variable string) bool { return strings.HasPrefix(variable, variableTask+"=") }) {
		return ""
	}
	return " (its task is longer than 64 KiB, so it is not in " + variableTask + " but only in the file that AGL_TASK_FILE names)"
}

// variableTask has the task, if it is short.
const variableTask = "AGL_TASK"

// withheld reports whether agents do not inherit a variable: variables of execution roles, the task that a person has set to try
// an agent by hand, and tokens, keys and addresses with passwords for agl's own programs.
func withheld(name string) bool {
	return slices.Contains([]string{
		"AGL_TOKEN", "AGL_TOKEN_FILE", "AGL_PROXY_TOKEN", "AGL_PROXY_API_KEY", "AGL_SERVE_API_KEY", "AGL_OIDC_CLIENT_SECRET", "AGL_DB", "AGL_STORE_URL",
		"AGL_CURRENT_ROLE", "AGL_SERVER_HOST", "AGL_SERVER_PORT", "AGL_MANAGED_STORE",
		"AGL_RUNNER_PROCESS", "AGL_LIFELINE_FD", "AGL_EMIT_URL", "AGL_EMIT_KEY", variableTask,
	}, name)
}

// inherited returns the environment of every process.
func (c *Config) inherited() []string {
	named := func(is func(name string) bool) func(variable string) bool {
		return func(variable string) bool {
			name, _, _ := strings.Cut(variable, "=")
			return is(name)
		}
	}
	// AGL_KEY may hold the key of agl store --gateway, and AGL_PROXY_KEYS the secret of all agents' keys. Env may set both for the agent.
	notInherited := append([]string{"AGL_KEY", "AGL_PROXY_KEYS"}, c.Withhold...)
	env := slices.DeleteFunc(slices.Clone(c.Environ), named(func(name string) bool { return slices.Contains(notInherited, name) }))
	all := variables(slices.DeleteFunc(append(env, c.Env...), named(withheld)))
	all.add("AGL_STORE_URL", c.StoreURL) // the runner's own may hold a key
	return httpproxy.Bypass(all)
}

// attemptVariables returns the variables of one attempt.
func (c *Config) attemptVariables(ctx context.Context, task agl.Task, f attemptFolder) (variables, error) {
	var v variables
	rolloutID, attemptID := task.Rollout.RolloutID, task.Attempt.AttemptID
	v.add("AGL_ROLLOUT_ID", rolloutID)
	v.add("AGL_ATTEMPT_ID", attemptID)
	v.add("AGL_MODE", string(task.Rollout.Mode))
	v.add("AGL_WORKER_ID", task.Attempt.WorkerID.V)
	if seed, ok := agl.Attributes(task.Rollout.Metadata).GetInt(metadataSeed); ok {
		v.add("AGL_SEED", strconv.FormatInt(seed, 10))
	}
	if input := string(task.Input()); len(input) <= maxVariable {
		v.add(variableTask, input)
	}
	v.add("AGL_TASK_FILE", f.task())
	v.add("AGL_RESOURCES_FILE", f.resources())
	v.add("AGL_RESULT_FILE", f.result())
	for _, r := range task.Resources {
		if p, ok := r.Resource.(agl.PromptTemplate); ok && len(p.Template) <= maxVariable {
			v.add("AGL_PROMPT_"+variableName(r.Name), p.Template)
		}
	}
	if err := c.modelVariables(&v, task); err != nil {
		return nil, err
	}
	if err := c.telemetryVariables(ctx, &v, rolloutID, attemptID); err != nil {
		return nil, err
	}
	return v, nil
}

// modelVariables adds the address of the model, if the resources have one.
func (c *Config) modelVariables(v *variables, task agl.Task) error {
	llm, err := task.LLM()
	if agl.ErrorCode(err) == agl.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	key, err := c.apiKey(llm)
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(strings.TrimRight(llm.Endpoint, "/"), "/v1")
	v.add("AGL_MODEL", llm.Model)
	v.add("OPENAI_MODEL", llm.Model)
	v.add("OPENAI_BASE_URL", base+"/v1")
	v.add("OPENAI_API_BASE", base+"/v1")
	v.add("OPENAI_API_KEY", key)
	v.add("ANTHROPIC_BASE_URL", base)
	v.add("ANTHROPIC_API_KEY", key)
	v.add("ANTHROPIC_AUTH_TOKEN", key)
	return c.emitVariables(v, task)
}

// apiKey returns the key of a model, which resources may take from the environment.
func (c *Config) apiKey(llm agl.LLM) (string, error) {
	if name, isEnv := strings.CutPrefix(llm.APIKey.V, "env:"); isEnv {
		return c.allowedVariable(name)
	}
	return cmp.Or(llm.APIKey.V, noKey), nil
}

// noKey is the key where none is required: SDKs do not start without one.
const noKey = "none"

// emitVariables adds the URL for the attempt's emissions: the first proxy among the resources, which is not always
// the model to call.
func (c *Config) emitVariables(v *variables, task agl.Task) error {
	for _, n := range task.Resources {
		p, ok := n.Resource.(agl.ProxyLLM)
		if !ok {
			continue
		}
		llm, err := p.ForAttempt(task.Rollout.RolloutID, task.Attempt.AttemptID)
		if err != nil {
			return err
		}
		key, err := c.apiKey(llm)
		v.add("AGL_EMIT_URL", strings.TrimRight(llm.Endpoint, "/")+"/emit")
		v.add("AGL_EMIT_KEY", key)
		return err
	}
	return nil
}

// allowedVariable returns the value of an environment variable that resources name.
func (c *Config) allowedVariable(name string) (string, error) {
	if strings.HasPrefix(name, "AGL_") || !slices.Contains(c.AllowEnv, name) {
		return "", agl.Errorf(agl.CodeInvalid, "the resources take the model's API key from the environment variable %s, which this runner does not allow; "+
			"allowed by --allow-env, or allow_env in a run file: %q", name, c.AllowEnv)
	}
	if value, found := lookup(c.Environ, name); found {
		return value, nil
	}
	return "", agl.Errorf(agl.CodeInvalid, "the model's API key is taken from the environment variable %s, which is not set in the runner's environment", name)
}

// resourceAttributes returns the attributes that the environment of agents gives their spans already, each with a comma after
// it. Those of an attempt are left out: this runner may itself be the agent of another.
func (c *Config) resourceAttributes() (kept string) {
	given, _ := lookup(slices.Concat(c.Environ, c.Env), "OTEL_RESOURCE_ATTRIBUTES")
	for attribute := range strings.SplitSeq(given, ",") {
		name, _, _ := strings.Cut(attribute, "=")
		if name = strings.TrimSpace(name); name != "" && name != agl.AttrRolloutID && name != agl.AttrAttemptID {
			kept += attribute + ","
		}
	}
	return kept
}

// lookup returns the value of a variable in an environment, in which the last one counts.
func lookup(environ []string, name string) (value string, found bool) {
	for _, v := range slices.Backward(environ) {
		if value, found := strings.CutPrefix(v, name+"="); found {
			return value, true
		}
	}
	return "", false
}

// telemetryVariables make an instrumented agent store its spans in its attempt.
func (c *Config) telemetryVariables(ctx context.Context, v *variables, rolloutID, attemptID string) error {
	if c.StoreURL == "" {
		return nil
	}
	v.add("OTEL_EXPORTER_OTLP_ENDPOINT", strings.TrimRight(c.StoreURL, "/"))
	v.add("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	v.add("OTEL_METRICS_EXPORTER", "none")
	v.add("OTEL_LOGS_EXPORTER", "none")
	v.add("OTEL_RESOURCE_ATTRIBUTES", c.resourceAttributes()+agl.AttrRolloutID+"="+rolloutID+","+agl.AttrAttemptID+"="+attemptID)
	if c.SpanToken != nil {
		token, err := c.SpanToken(ctx, rolloutID, attemptID)
		if err != nil {
			return fmt.Errorf("the token for the agent's spans: %w", err)
		}
		if token != "" {
			// The value is percent-decoded by exporters; a space must be escaped.
			v.add("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20"+token)
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		v.add("TRACEPARENT", "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-"+span.TraceFlags().String())
	}
	return nil
}
