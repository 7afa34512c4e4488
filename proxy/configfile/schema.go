package configfile

import (
	"slices"
	"time"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/extract"
)

// declare declares the whole file.
func declare(f *File) yamlfile.Value {
	keys := []yamlfile.Field{
		yamlfile.Key("listen", "Where to serve; by default the command's --host and --port.", yamlfile.Address(&f.Listen)),
		yamlfile.Key("store", "Base URL of the store that takes the records.", yamlfile.URL(&f.Store)).Default("http://localhost:4747"),
		yamlfile.Key("token", "For the store, and asked for by /admin and /metrics.", yamlfile.Secret(&f.Token)),
	}
	for _, k := range Keys(&f.Proxy) {
		if k.Name() == "models" {
			k = k.Required(", there must be one at least")
		}
		keys = append(keys, k)
	}
	return yamlfile.Mapping(keys...).Check(func(s *yamlfile.Scope) {
		for _, key := range [...]string{"sessions.reward_window", "sessions.rewards"} {
			if s.Clean() && f.Proxy.Sessions.IdleTimeout == 0 && f.Proxy.Sessions.Check() != nil && s.Given(key) {
				s.Failf(key, "needs sessions.idle_timeout, without which no session is recorded")
			}
		}
		if judge := f.Proxy.Sessions.Judge; s.Clean() && judge != nil && !slices.ContainsFunc(f.Proxy.Models, func(m proxy.Model) bool { return m.Name == judge.Model }) {
			s.Failf("sessions.rewards.judge", "got the model %s, but models has none of that name", judge.Model)
		}
		if p := f.Proxy.Sessions.Program; s.Clean() && p != nil {
			s.FailAt("sessions.rewards.program", p.Check())
		}
	})
}

// Keys declares the keys of a proxy, bound to c, for files that configure a proxy
// among other things. No key is required. A key that is absent leaves the value in c
// unchanged.
func Keys(c *proxy.Config) []yamlfile.Field {
	return []yamlfile.Field{
		yamlfile.Key("models", "The backends. Several of one name are replicas: the calls of a rollout stay on one of them, rollouts are spread.",
			yamlfile.NonEmptyList(&c.Models, model)),
		yamlfile.Key("public_url", "Where agents reach the proxy, when that is not where it listens.", yamlfile.URL(&c.PublicURL).Check(func(s *yamlfile.Scope) {
			s.FailAt("", proxy.CheckPublicURL(c.PublicURL))
		})),
		yamlfile.Key("key_secret", "Agents then need a key: the virtual key of their attempt, which is made with it, or one of the store.", yamlfile.Secret(&c.KeySecret)),
		yamlfile.Key("control", "What the calls of rollouts without a control of their own may do.", control(&c.Control)),
		yamlfile.Key("retry", "How a request is repeated that a backend did not answer, or answered with 408, 429 or 5xx.", yamlfile.Mapping(
			yamlfile.Key("attempts", "How often a request is sent at most; 1 repeats nothing.", yamlfile.Integer(&c.Retry.Attempts, yamlfile.Min(1))).Default(3),
			yamlfile.Key("delay", "Limit of the pause before the first repeat; it doubles with each.", yamlfile.Duration(&c.Retry.Delay)).Default("100ms"),
			yamlfile.Key("max_delay", "Limit of every pause.", yamlfile.Duration(&c.Retry.MaxDelay)).Default("5s"),
		)),
		yamlfile.Key("health", "When backends count as down.", yamlfile.Mapping(
			yamlfile.Key("failures", "Calls in a row that a backend may fail before it rests.", yamlfile.Integer(&c.Health.Failures, yamlfile.Min(1))).Default(5),
			yamlfile.Key("cooldown", "How long it then gets no calls, until one call tries it again; doubles as long as that fails.", yamlfile.Duration(&c.Health.Cooldown)).Default("1s"),
			yamlfile.Key("max_cooldown", "Limit of the cooldown.", yamlfile.Duration(&c.Health.MaxCooldown)).Default("30s"),
			yamlfile.Key("probe_interval", "How often a health_url is requested.", yamlfile.Duration(&c.Health.ProbeInterval)).Default("5s"),
			yamlfile.Key("probe_timeout", "Limit of each probe.", yamlfile.Duration(&c.Health.ProbeTimeout)).Default("2s"),
		)),
		yamlfile.Key("pause", "While the proxy is paused, as for new weights.", yamlfile.Mapping(
			yamlfile.Key("timeout", "How long a call waits.", yamlfile.Duration(&c.PauseTimeout)).Default("5m"),
			yamlfile.Key("queue", "How many calls may wait.", yamlfile.Integer(&c.PauseQueue, yamlfile.Min(1))).Default(10000),
		)),
		yamlfile.Key("cache", "Answers equal requests with the same reply. Not for training.", yamlfile.Mapping(
			yamlfile.Key("size", "Bytes of replies that are kept; 0 is no cache.", yamlfile.SizeOrZero(&c.CacheBytes)).Default(0),
		)),
		yamlfile.Key("capture", "How calls are recorded.", capture(c)),
		yamlfile.Key("sessions", "Records the calls of live programs, which name their session in the header X-Agl-Session or have its key.", yamlfile.Mapping(
			yamlfile.Key("idle_timeout", "A session ends after this long without a call; 0 records none.", yamlfile.DurationOrZero(&c.Sessions.IdleTimeout)).Default("0s"),
			yamlfile.Key("reward_window", "How long a session that has ended waits for its reward; 0 leaves it to the store. In a run that learns from sessions (algorithm online, or apo with live) the default is 24h.", yamlfile.DurationOrZero(&c.Sessions.RewardWindow)).Default("0s"),
			yamlfile.Key("rewards", "What gives sessions rewards, beside the requests that send them.", rewards(&c.Sessions)),
		)),
		yamlfile.Key("forward_paths", "Further paths whose POSTs are forwarded to a backend, without /v1: [/rerank]. Others get 404.",
			yamlfile.List(&c.ForwardPaths, forwardPath)),
		yamlfile.Key("request_size", "Longer requests get 413.", yamlfile.Size(&c.MaxRequestBytes)).Default("64MiB"),
		yamlfile.Key("queue_timeout", "How long a call waits for a backend's limits, or for memory.", yamlfile.Duration(&c.QueueTimeout)).Default("30s"),
		yamlfile.Key("idle_timeout", "How long a backend may send nothing.", yamlfile.Duration(&c.IdleTimeout)).Default("10m"),
		yamlfile.Key("log", "What is logged of calls.", yamlfile.Mapping(
			yamlfile.Key("calls", "A line for each call, at level info.", yamlfile.Bool(&c.LogCalls)).Default(c.LogCalls),
			yamlfile.Key("contents", "Requests and replies in these lines, as they are.", yamlfile.Bool(&c.LogContents)).Default(false),
		)),
	}
}

func forwardPath(p *string) yamlfile.Value {
	return yamlfile.Text(p).Check(func(s *yamlfile.Scope) {
		if s.Clean() {
			s.FailAt("", proxy.CheckForwardPath(*p))
		}
	})
}

func rewards(to *proxy.Sessions) yamlfile.Value {
	type event = yamlfile.Entry[float64]
	return yamlfile.Mapping(
		yamlfile.Key("events", "The events that the application may report with POST /v1/agl/event, and their rewards, such as {accepted: 1, rejected: -1}. Their source is event, of priority 20.",
			yamlfile.Via(func(list *[]event) yamlfile.Value {
				return yamlfile.Map(list, "the name of an event", `.`, func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Min(-1000), yamlfile.Max(1000)) })
			}, func(list []event) {
				to.Events = make(map[string]float64, len(list))
				for _, e := range list {
					to.Events[e.Name] = e.Value
				}
			})),
		yamlfile.Key("program", "A program that reads each session when it ends, as JSON on its standard input, and writes the reward, as a number or JSON. Its source is program, of priority 10.",
			yamlfile.Via(program, func(p extract.Program) { to.Program = &p })),
		yamlfile.Key("judge", "A model, or its name alone, that says for each reply 1, 0 or -1, by the message that came after it. Its source is judge, of priority 0.",
			yamlfile.Via(judge, func(j extract.Judge) { to.Judge = &j })),
	)
}

func program(p *extract.Program) yamlfile.Value {
	return yamlfile.Mapping(
		yamlfile.Key("command", "The program and its arguments.", yamlfile.Command(&p.Command)).Required(),
		yamlfile.Key("timeout", "How long a run may take; then it is killed, and the session gets no reward of it.", yamlfile.Duration(&p.Timeout)).Default("30s"),
	)
}

func judge(j *extract.Judge) yamlfile.Value {
	return yamlfile.Short(yamlfile.Text(&j.Model), yamlfile.Mapping(
		yamlfile.Key("model", "One of the models of the proxy.", yamlfile.Text(&j.Model)).Required(),
		yamlfile.Key("prompt", "What it is asked, with {next} for the next message, {reply} and {conversation}; by default whether the next message shows that the reply was good.", yamlfile.Text(&j.Prompt)),
		yamlfile.Key("votes", "How often it is asked about a reply; the reward is the mean.", yamlfile.Integer(&j.Votes, yamlfile.Min(1), yamlfile.Max(100))).Default(1),
		yamlfile.Key("max_tokens", "Limit of an answer; by default that of the model.", yamlfile.Integer(&j.MaxTokens, yamlfile.Min(1))),
		yamlfile.Key("timeout", "How long the votes about a reply may take; then it gets no reward of the judge.", yamlfile.Duration(&j.Timeout)).Default("1m"),
	)).Check(func(s *yamlfile.Scope) {
		if s.Clean() {
			s.FailAt("", j.Check())
		}
	})
}

func capture(c *proxy.Config) yamlfile.Value {
	return yamlfile.Mapping(
		yamlfile.Key("mode", "require refuses calls when there is no room for their records, best-effort lets them pass, off records nothing.",
			yamlfile.Words(&c.Capture, proxy.CaptureRequire, proxy.CaptureBestEffort, proxy.CaptureOff)).Default(string(proxy.CaptureRequire)),
		yamlfile.Key("spool_dir", "A folder of this proxy alone, where records wait while the store is away. Without one they wait in memory.", yamlfile.Path(&c.SpoolDir)),
		yamlfile.Key("spool_size", "Limit of the records in it.", yamlfile.Size(&c.SpoolBytes)).Default("1GiB"),
		yamlfile.Key("memory", "Limit of the memory for calls until they are stored.", yamlfile.Size(&c.CaptureBytes)).Default("256MiB"),
		yamlfile.Key("reply_size", "How much of a reply is recorded.", yamlfile.Size(&c.MaxReplyBytes)).Default("64MiB"),
		yamlfile.Key("store_timeout", "Limit of one request to the store; with a spool the default is 5s.", yamlfile.Duration(&c.StoreTimeout)).Default("30s"),
		yamlfile.Key("store_retry", "How long a failing write is repeated before a record is lost; with a spool it never is.", yamlfile.Duration(&c.StoreRetry)).Default("2m"),
		yamlfile.Key("write_delay", "How long a record may wait to be written together with others.", yamlfile.Duration(&c.WriteDelay)).Default("5ms"),
	)
}

func model(m *proxy.Model) yamlfile.Value {
	return yamlfile.Mapping(
		yamlfile.Key("name", "What agents ask for.", yamlfile.Text(&m.Name)).Required(),
		yamlfile.Key("base_url", "Of the backend's API, usually ending in /v1. A query is sent with each request.", yamlfile.URL(&m.BaseURL)).Required(),
		yamlfile.Key("backend_model", "What the backend calls the model; by default the name.", yamlfile.Text(&m.BackendModel)),
		yamlfile.Key("api_key", "Sent to the backend; without one the agent's own is forwarded.", yamlfile.Secret(&m.APIKey)),
		yamlfile.Key("version", "Which weights these are; recorded with each call.", yamlfile.Text(&m.Version)),
		yamlfile.Key("text_only", "For backends that refuse requests for token ids and log-probabilities, as hosted services do.", yamlfile.Bool(&m.TextOnly)).Default(false),
		yamlfile.Key("api", "The API of the backend.", yamlfile.Word(&m.API, map[string]proxy.API{
			"openai": proxy.APIOpenAI, string(proxy.APIAzure): proxy.APIAzure, string(proxy.APIAnthropic): proxy.APIAnthropic,
		})).Default("openai"),
		yamlfile.Key("api_version", "The api-version of Azure (default 2024-10-21), or the anthropic-version for agents that send none (default 2023-06-01).", yamlfile.Text(&m.APIVersion)),
		yamlfile.Key("chat_only", "For backends without the Responses API.", yamlfile.Bool(&m.ChatOnly)).Default(false),
		yamlfile.Key("replay", "For backends that give no token ids while they stream; detected where their refusal says so, as SGLang's does for chat.", yamlfile.Bool(&m.Replay)).Default(false),
		yamlfile.Key("cache_salt", "Send the version as cache_salt, for engines whose weights change in place.", yamlfile.Bool(&m.CacheSalt)).Default(false),
		yamlfile.Key("limits", "What the backend gets to do; 0 is no limit.", yamlfile.Mapping(
			yamlfile.Key("in_flight", "Calls at once.", yamlfile.Integer(&m.Limits.InFlight)).Default(0),
			yamlfile.Key("requests_per_minute", "Requests in a minute.", yamlfile.Integer(&m.Limits.RequestsPerMinute)).Default(0),
			yamlfile.Key("tokens_per_minute", "Tokens in a minute.", yamlfile.Integer(&m.Limits.TokensPerMinute)).Default(0),
		)),
		yamlfile.Key("price", "What tokens cost, for keys with a budget in dollars; 0 is nothing. Such keys cannot call models without a price.", price(&m.Price)),
		yamlfile.Key("health_url", "Requested every health.probe_interval to see whether the backend is up; a path starts at the root of base_url.", yamlfile.Text(&m.HealthURL)),
		yamlfile.Key("pause_url", "Requested with POST when the proxy is paused.", yamlfile.Text(&m.PauseURL)),
		yamlfile.Key("resume_url", "Requested with POST when it resumes.", yamlfile.Text(&m.ResumeURL)),
	).Check(func(s *yamlfile.Scope) {
		if s.Clean() {
			s.Fail(m.Validate())
		}
	})
}

func price(to **proxy.Price) yamlfile.Value {
	given := &proxy.Price{}
	limit := yamlfile.Min(0)
	return yamlfile.Mapping(
		yamlfile.Key("prompt", "Dollars per million tokens of prompts.", yamlfile.Number(&given.Prompt, limit)).Required(),
		yamlfile.Key("completion", "Dollars per million tokens of replies.", yamlfile.Number(&given.Completion, limit)).Required(),
	).Check(func(*yamlfile.Scope) { *to = given })
}

func control(c *proxy.Control) yamlfile.Value {
	return yamlfile.Mapping(
		yamlfile.Key("force", "Members that every request gets, whatever the agent sent.", yamlfile.Object(&c.Force)),
		yamlfile.Key("default", "Members that a request gets where the agent sent none.", yamlfile.Object(&c.Default)),
		yamlfile.Key("forbid", "Members with which a request is refused.", yamlfile.List(&c.Forbid, yamlfile.Text)),
		yamlfile.Key("models", "The models that attempts may ask for; none is all.", yamlfile.List(&c.Models, yamlfile.Text)),
		yamlfile.Key("calls_per_minute", "Calls that each attempt may begin within any 60 seconds; 0 is no limit.", yamlfile.Integer(&c.CallsPerMinute)).Default(0),
		yamlfile.Key("budget", "What each attempt may use; what is left out, or 0, is unlimited.", yamlfile.Mapping(
			yamlfile.Key("calls", "Calls.", yamlfile.Integer(&c.Budget.Calls)),
			yamlfile.Key("tokens", "Tokens of prompts and replies.", yamlfile.Integer(&c.Budget.Tokens)),
			yamlfile.Key("time", "Time since the attempt's first call.", yamlfile.Via(yamlfile.DurationOrZero, func(d time.Duration) { c.Budget.Seconds = d.Seconds() })),
			yamlfile.Key("over", "What a call over the budget gets: a 429, or an empty reply that ended for its length.",
				yamlfile.Word(&c.Budget.Over, map[string]proxy.OverBudget{"error": proxy.OverError, "length": proxy.OverLength})).Default("error"),
		)),
	).Check(func(s *yamlfile.Scope) {
		if s.Clean() {
			s.Fail(c.Validate())
		}
	})
}
