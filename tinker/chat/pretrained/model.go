package pretrained

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// Config has the settings of a chat format that the model's files do not tell.
type Config struct {
	// Style is how the model writes tool calls; [StyleAuto] finds it out from the template.
	Style Style
	// Stop are the texts of further tokens that end a reply, besides the model's end of sequence and what its template puts
	// after a message of the assistant.
	Stop []string
	// Turns is how many prompts and replies are remembered, so that later prompts continue their tokens; zero means 1024. A
	// conversation whose turns are forgotten before its next call falls into several sequences.
	Turns int
	// TurnBytes is the memory that they take at most; zero means 256 MiB.
	TurnBytes int
	// Logger receives why a prompt does not continue an earlier turn; nil discards.
	Logger *slog.Logger
}

// Model is the chat format of a model. It implements [chat.Renderer], [chat.PromptReader] and [chat.Rememberer], and is safe for concurrent use.
type Model struct {
	tok      *tokenizer.Tokenizer
	template *Template
	style    Style
	thinks   bool // replies may hold reasoning
	// opensReasoning is true when the template begins the reasoning of a reply itself.
	opensReasoning bool
	form           form
	stops          map[int32]bool
	turns          turns
	logger         *slog.Logger
}

// Load makes the chat format of a model. What cannot be reproduced exactly is agl.ErrInvalid.
func Load(f Files, cfg Config) (*Model, error) {
	if err := cfg.Style.validate(); err != nil {
		return nil, err
	}
	if err := bounds.NotNegative("pretrained: Config.", bounds.Number("Turns", cfg.Turns), bounds.Number("TurnBytes", cfg.TurnBytes)); err != nil {
		return nil, err
	}
	cfg.Turns, cfg.TurnBytes = cmp.Or(cfg.Turns, 1024), cmp.Or(cfg.TurnBytes, 256<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	tok, err := tokenizer.Load(f.Tokenizer)
	if err != nil {
		return nil, err
	}
	source, special, err := f.template()
	if err != nil {
		return nil, err
	}
	template, err := NewTemplate(source, special)
	if err != nil {
		return nil, err
	}
	m := &Model{
		tok: tok, template: template, style: cfg.Style, thinks: strings.Contains(source, thinkEnd),
		stops: map[int32]bool{}, turns: turns{limit: cfg.Turns, maxBytes: cfg.TurnBytes}, logger: cfg.Logger,
	}
	if m.style == StyleAuto {
		m.style = styleOf(source)
	}
	if err := m.probe(); err != nil {
		return nil, err
	}
	return m, m.addStops(f, cfg.Stop, special["eos_token"])
}

// addStops adds the tokens that end a reply to those that probing the template has found.
func (m *Model) addStops(f Files, texts []string, eos string) error {
	if eos != "" {
		texts = append(slices.Clone(texts), eos)
	}
	for _, text := range texts {
		id, ok := m.tok.ID(text)
		if !ok {
			return agl.Errorf(agl.CodeInvalid, "stop: %q is not a token of the model", text)
		}
		m.stops[id] = true
	}
	ids, err := f.ends()
	if err != nil {
		return err
	}
	for _, id := range ids {
		m.stops[id] = true
	}
	if len(m.stops) == 0 {
		return agl.Errorf(agl.CodeInvalid, "stop: the model has no eos_token, and its template ends replies with no special token; configure one")
	}
	return nil
}

// Tokenizer is the model's tokenizer.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// Style is how the model writes tool calls.
func (m *Model) Style() Style { return m.style }

// Stop implements [chat.Renderer].
func (m *Model) Stop() []int32 { return slices.Sorted(maps.Keys(m.stops)) }

// Stream implements [chat.Renderer]. It reads replies to prompts without Variables; [Model.StreamAfter] reads any.
func (m *Model) Stream() chat.Stream { return m.stream(m.opensReasoning) }

// StreamAfter implements [chat.PromptReader]. Variables such as enable_thinking decide whether the template begins the reasoning.
func (m *Model) StreamAfter(prompt []int32) chat.Stream {
	const end = 16 // tokens: enough for the tag and the newlines after it
	return m.stream(m.thinks && opens(m.tok.Decode(prompt[max(len(prompt)-end, 0):])))
}

func (m *Model) stream(reasoning bool) *stream {
	s := &stream{style: m.style, thinks: m.thinks, stops: m.stops, decoder: m.tok.NewDecoder()}
	if reasoning {
		s.state = inReasoning
	}
	return s
}

// opens reports whether a prompt begins the reasoning of the reply.
func opens(prompt string) bool { return strings.HasSuffix(strings.TrimRight(prompt, "\n"), thinkBegin) }

// Remember implements [chat.Rememberer].
func (m *Model) Remember(prompt, reply []int32) { m.turns.add(m.tok, prompt, reply) }

// Prompt implements [chat.Renderer]. It continues the tokens of the conversation's earlier turns where the template keeps
// their text, and logs where it does not; see [Model.Continue].
func (m *Model) Prompt(p chat.PromptParams) ([]int32, error) {
	c, err := m.Continue(p)
	if c.Break != "" {
		m.logger.Info("pretrained: a prompt does not continue an earlier turn", slog.String("reason", c.Break))
	}
	return c.IDs, err
}

// Continue renders the prompt for the assistant's next message, and says how it continues what was sampled before.
func (m *Model) Continue(p chat.PromptParams) (Continuation, error) {
	if p.Tools != nil && m.style == StyleNone {
		return Continuation{}, agl.Errorf(agl.CodeInvalid, "tools: this model's chat template writes tool calls in no known style (hermes, llama3, deepseek)")
	}
	text, err := m.render(p.Messages, TextParams{Tools: p.Tools, Variables: p.Variables, AddGenerationPrompt: true})
	if err != nil {
		return Continuation{}, err
	}
	return m.turns.extend(m.tok, text), nil
}

// render renders messages in the form that the template needs.
func (m *Model) render(messages []chat.Message, p TextParams) (string, error) {
	values := make([]any, len(messages))
	for i, message := range messages {
		v, err := m.form.value(message)
		if err != nil {
			return "", agl.Errorf(agl.CodeInvalid, "messages[%d]: %w", i, err)
		}
		values[i] = v
	}
	return m.template.render(values, p)
}
