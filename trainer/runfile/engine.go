package runfile

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/keys"
)

func (d *draft) engine(to **Engine) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Via(func(e *Engine) yamlfile.Value {
		var s Server
		c := &s.Config
		c.Dir = d.dir
		own := []yamlfile.Field{
			key("base_url", "Where the server of command will serve OpenAI's API, such as http://127.0.0.1:8000/v1.", yamlfile.URL(&c.BaseURL)).
				Required(", where the server of command will listen, such as http://127.0.0.1:8000/v1"),
			key("ready", "Requested with GET until the server is ready; a path starts at the root of base_url.", yamlfile.Text(&c.Ready)).Default(inference.DefaultReady),
			key("model", "What the server calls its model; by default the proxy's model.", yamlfile.Text(&s.Model.BackendModel)),
			key("start_timeout", "Timeout of every start, until the server is ready.", yamlfile.Duration(&c.StartTimeout)).Default("10m"),
			key("restarts", "How often in succession a server that has died is started again; being ready for 10 minutes starts a new count.",
				yamlfile.Via(func(n *int) yamlfile.Value { return yamlfile.Integer(n, yamlfile.Min(0)) }, func(n int) {
					if c.Restarts = n; n == 0 {
						c.Restarts = -1
					}
				})).Default(inference.DefaultRestarts),
			key("grace", "Time between SIGTERM and SIGKILL when the server must end; 0 is none.", keys.Grace(&c.GracePeriod)).Default("10s"),
			key("pause", "Requested with POST when the proxy is paused, so that the server sleeps: /sleep?level=1 for vLLM.", yamlfile.Text(&s.Model.PauseURL)),
			key("resume", "Requested with POST before the proxy goes on: /wake_up for vLLM.", yamlfile.Text(&s.Model.ResumeURL)),
			key("text_only", "The server gives no token ids and log-probabilities, and is not asked for them.", yamlfile.Bool(&s.Model.TextOnly)).Default(false),
		}
		command := yamlfile.Command(&c.Command).Must("a list such as [vllm, serve, Qwen/Qwen3-0.6B]").Check(func(scope *yamlfile.Scope) {
			if e.Server = &s; scope.Clean() {
				scope.Fail(d.checkProgram(&c.Command[0]))
			}
		})
		return yamlfile.OneOfWith("command", own,
			key("policy", "A small language model that is part of agl and runs on the CPU, with one token per character.", embedded(&e.Policy)),
			key("tinker", "A remote engine that speaks the Tinker protocol over HTTP.", remote(&e.Tinker)),
			key("command", "An inference server for this run, which agl starts, restarts and ends: the program and its arguments. Its model is not trained. The keys that follow belong to it.", command),
		)
	}, func(e Engine) { *to = &e })
}

// checkProgram finds the inference server, unless another process starts it.
func (d *draft) checkProgram(program *string) error {
	if strings.ContainsRune(*program, filepath.Separator) && !filepath.IsAbs(*program) {
		*program = filepath.Join(d.dir, *program)
	}
	if d.elsewhere {
		return nil
	}
	_, err := exec.LookPath(*program)
	return err
}

func embedded(to **Policy) yamlfile.Value {
	key, integer, from, upTo := yamlfile.Key, yamlfile.Integer[int], yamlfile.Min, yamlfile.Max
	return yamlfile.Via(func(p *Policy) yamlfile.Value {
		c := &p.Config
		return yamlfile.Mapping(
			key("context", "The longest conversation in tokens.", integer(&c.Context, from(2), upTo(1<<12))).Default(48),
			key("layers", "Number of transformer blocks.", integer(&c.Layers, from(1), upTo(64))).Default(2),
			key("dim", "Width of the residual stream, a multiple of 16·heads.", integer(&c.Dim, from(16), upTo(1<<12))).Default(64),
			key("heads", "Number of attention heads.", integer(&c.Heads, from(1), upTo(64))).Default(4),
			key("ff", "Width of the feed-forward layer, a multiple of 16.", integer(&c.FF, from(16), upTo(1<<14))).Default(256),
			key("characters", "The vocabulary, one token per character.", yamlfile.Text(&p.Characters)).Default(chat.DefaultAlphabet),
			key("warm_start", "Supervised training on conversations, before the algorithm.", warmStart(&p.WarmStart)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				checkPolicy(s, p)
			}
		})
	}, func(p Policy) { *to = &p })
}

// checkPolicy lets the engine check its settings.
func checkPolicy(s *yamlfile.Scope, p *Policy) {
	characters, err := chat.NewCharacters(p.Characters)
	if err != nil {
		s.FailAt("characters", err)
		return
	}
	c := p.Config
	c.Vocab = characters.Vocab()
	_, err = policy.NewService(c)
	s.Fail(err)
}

func warmStart(to **engine.WarmStart) yamlfile.Value {
	return yamlfile.Via(func(w *engine.WarmStart) yamlfile.Value {
		key := yamlfile.Key
		return yamlfile.Mapping(append([]yamlfile.Field{
			key("file", `A JSON Lines file of {"messages": [{"role": …, "content": …}, …]}; the model learns the assistant's messages.`, yamlfile.File(&w.Path)).Required(),
			key("steps", "Number of optimizer steps.", yamlfile.Integer(&w.Steps, yamlfile.Min(1))).Default(engine.DefaultWarmSteps),
			key("batch", "Conversations in a step.", yamlfile.Integer(&w.Batch, yamlfile.Min(1), yamlfile.Max(algorithm.MaxBatch))).Default(32),
		}, keys.Rate(&w.Schedule, "By default 0.003, falling to 0, after a warm-up over a tenth of the steps, at most 100.")...)...).Check(keys.OneRate)
	}, func(w engine.WarmStart) { *to = &w })
}
