package chat

import (
	"slices"
	"unicode/utf8"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// RoleMarks is the chat format of the embedded policy. A message is the mark of its role and its text; one of the assistant
// ends with an end mark:
//
//	▲12 times 7▼call 12*7■◆84▼ans 84■
//
// The roles are user, assistant and tool. The format has no tool definitions and no structured tool calls. It is safe for
// concurrent use.
type RoleMarks struct {
	tok     Marked
	sampled sampledReplies
}

// Marked is a tokenizer with [Mark] tokens: [Characters] or [Bytes].
type Marked interface {
	Tokenizer
	// Vocab is the number of ids, marks included.
	Vocab() int
	// Mark returns the id of a mark.
	Mark(m Mark) int32
	// encodeWithMarks also encodes the characters that marks decode to. Only a model's own reply may contain them. Where the
	// model wrote other tokens of the same text, [RoleMarks.Remember] knows them.
	encodeWithMarks(text string) ([]int32, error)
}

// NewRoleMarks makes the format for a tokenizer.
func NewRoleMarks(tok Marked) *RoleMarks { return &RoleMarks{tok: tok} }

// Prompt implements [Renderer].
func (r *RoleMarks) Prompt(p PromptParams) ([]int32, error) {
	if p.Tools != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "tools: this model takes no tool definitions")
	}
	ids, _, err := r.render(p.Messages)
	if err != nil {
		return nil, err
	}
	return append(ids, r.tok.Mark(MarkAssistant)), nil
}

// render returns the ids of a conversation, and for each of them whether the assistant wrote it.
func (r *RoleMarks) render(messages []Message) (ids []int32, written []bool, err error) {
	for i, m := range messages {
		var mark Mark
		encode := r.tok.Encode
		switch m.Role {
		case "user":
			mark = MarkUser
		case "tool":
			mark = MarkTool
		case "assistant":
			mark, encode = MarkAssistant, r.tok.encodeWithMarks
		default:
			return nil, nil, agl.Errorf(agl.CodeInvalid, "messages[%d].role: %q is not supported by this model; allowed are user, assistant, tool", i, m.Role)
		}
		if len(m.ToolCalls) > 0 {
			return nil, nil, agl.Errorf(agl.CodeInvalid, "messages[%d].tool_calls: this model takes no structured tool calls", i)
		}
		ids = append(ids, r.tok.Mark(mark))
		var text []int32
		if mark == MarkAssistant {
			text = r.sampled.find(ids, m.Content)
		}
		if text == nil {
			if text, err = encode(m.Content); err != nil {
				return nil, nil, agl.Errorf(agl.CodeInvalid, "messages[%d].content: %w", i, err)
			}
		}
		ids = append(ids, text...)
		if mark == MarkAssistant {
			ids = append(ids, r.tok.Mark(MarkEnd))
		}
		begin := len(written)
		written = append(written, make([]bool, len(ids)-begin)...)
		for j := begin + 1; mark == MarkAssistant && j < len(ids); j++ {
			written[j] = true
		}
	}
	return ids, written, nil
}

// Stream implements [Renderer].
func (r *RoleMarks) Stream() Stream { return &textStream{tok: r.tok, end: r.tok.Mark(MarkEnd)} }

// textStream reads replies that are text. Their end mark, if it is the last token, is not a part of it.
type textStream struct {
	tok     Tokenizer
	end     int32
	pending []int32 // an end mark, or the tokens of an incomplete character
}

func (s *textStream) Add(id int32) Delta {
	s.pending = append(s.pending, id)
	if id == s.end {
		return Delta{}
	}
	text := s.tok.Decode(s.pending)
	if last, _ := utf8.DecodeLastRuneInString(text); last == utf8.RuneError && text != "" {
		return Delta{} // a later token may complete the character
	}
	s.pending = s.pending[:0]
	return Delta{Content: text}
}

func (s *textStream) Close() Delta { return Delta{Content: s.tok.Decode(withoutEnd(s.pending, s.end))} }

func withoutEnd(ids []int32, end int32) []int32 {
	if n := len(ids); n > 0 && ids[n-1] == end {
		return ids[:n-1]
	}
	return ids
}

// Remember implements [Rememberer]. It keeps up to 1024 replies whose text does not determine their ids: those with bytes
// that are no character, or that spell a mark. Of several replies to a prompt with the same text it keeps the last one.
func (r *RoleMarks) Remember(prompt, reply []int32) {
	reply = withoutEnd(reply, r.tok.Mark(MarkEnd))
	text := r.tok.Decode(reply)
	if again, err := r.tok.encodeWithMarks(text); err != nil || !slices.Equal(again, reply) {
		r.sampled.add(prompt, text, reply)
	}
}

// Stop implements [Renderer].
func (r *RoleMarks) Stop() []int32 { return []int32{r.tok.Mark(MarkEnd)} }

// Demonstration turns a conversation into a datum for supervised training (cross_entropy): weight 1 on what the assistant
// writes, end marks included, and 0 on everything else. A conversation without a message of the assistant is
// agl.ErrInvalid.
func (r *RoleMarks) Demonstration(messages []Message) (tinker.Datum, error) {
	ids, written, err := r.render(messages)
	if err != nil {
		return tinker.Datum{}, err
	}
	n := len(ids) - 1
	if n < 1 {
		return tinker.Datum{}, agl.Errorf(agl.CodeInvalid, "messages: the demonstration is empty")
	}
	d := tinker.Datum{Input: ids[:n], Targets: ids[1:], Weights: make([]float32, n)}
	for i := range n {
		if written[i+1] {
			d.Weights[i] = 1
		}
	}
	if !slices.Contains(written, true) {
		return tinker.Datum{}, agl.Errorf(agl.CodeInvalid, "messages: the assistant writes nothing in the demonstration")
	}
	return d, nil
}
