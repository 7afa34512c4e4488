package extract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/prompt"
)

// Judge is a model that rates each reply 1, 0 or -1 by the message that followed it. A reply that no message followed gets
// no reward.
type Judge struct {
	Model     string
	Prompt    string // with {conversation}, {reply} and {next}, in Python's format; empty is DefaultPrompt
	Votes     int    // how often the model is asked about a reply; the reward is the mean. 0 is 1
	MaxTokens int    // limit of an answer; 0 leaves it to the model
	// Timeout bounds the votes about one reply; 0 is a minute.
	Timeout time.Duration
}

// DefaultPrompt is the prompt of a judge whose Prompt is empty.
const DefaultPrompt = `You judge one reply of an assistant by the message that came after it.

The conversation before the reply:
{conversation}

The reply:
{reply}

The next message:
{next}

Answer 1 if the next message shows that the reply was good: its writer is content or goes on to something else, or a tool succeeded.
Answer -1 if it shows that the reply was bad: its writer corrects it, complains or asks again, or a tool failed.
Answer 0 if it shows neither. Answer with the number alone.`

// Check refuses invalid settings with CodeInvalid.
func (j *Judge) Check() error {
	if j.Model == "" {
		return agl.Errorf(agl.CodeInvalid, "model: empty, must be the name of a model")
	}
	if j.Prompt != "" && !strings.Contains(j.Prompt, "{next}") {
		return agl.Errorf(agl.CodeInvalid, "prompt: has no {next}, must have it, and may have {conversation} and {reply}")
	}
	_, err := j.question("", "", "")
	return err
}

func (j *Judge) question(conversation, reply, next string) (string, error) {
	return prompt.Render(agl.PromptTemplate{Template: cmp.Or(j.Prompt, DefaultPrompt), Engine: agl.PromptFString},
		map[string]any{"conversation": conversation, "reply": reply, "next": next})
}

// Ask makes a call of POST /v1/chat/completions.
type Ask func(ctx context.Context, request []byte) (reply []byte, err error)

// Judged is the reward of a reply.
type Judged struct {
	Call    string  // Call.ID
	Value   float64 // from -1 to 1
	Message string  // the votes, as text
}

// Judge judges the replies of a session and calls judged with each reward. failed has an error for each reply that could not
// be judged. err is the cause of ctx, or the error of judged, which ends the judging.
func (j *Judge) Judge(ctx context.Context, s *Session, ask Ask, judged func(Judged) error) (failed []error, err error) {
	for i := range s.Calls {
		call := &s.Calls[i]
		next, found := s.next(i)
		if !found || call.ID == "" {
			continue
		}
		value, votes, err := j.votes(ctx, call, next, ask)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("reply %s: %w", call.ID, err))
			continue
		}
		if err := judged(Judged{Call: call.ID, Value: value, Message: votes}); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// votes asks the model about one reply, and returns the mean of the votes that can be read.
func (j *Judge) votes(ctx context.Context, call *Call, next *adapter.Message, ask Ask) (mean float64, votes string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(j.Timeout, time.Minute), fmt.Errorf("the judge took longer than its %s", cmp.Or(j.Timeout, time.Minute)))
	defer cancel()
	question, err := j.question(transcript(call.Messages), spoken(&call.Reply), next.Role+": "+spoken(next))
	if err != nil {
		return 0, "", err
	}
	request, err := json.Marshal(struct {
		Model     string              `json:"model"`
		Messages  []map[string]string `json:"messages"`
		MaxTokens int                 `json:"max_tokens,omitzero"`
	}{j.Model, []map[string]string{{"role": "user", "content": strings.ToValidUTF8(question, "\uFFFD")}}, j.MaxTokens})
	if err != nil {
		return 0, "", err
	}
	var said []string
	var sum float64
	var failed []error
	for range cmp.Or(j.Votes, 1) {
		vote, err := j.vote(ctx, request, ask)
		if cause := context.Cause(ctx); cause != nil {
			return 0, "", cause
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		sum += vote
		said = append(said, strconv.FormatFloat(vote, 'f', -1, 64))
	}
	if len(said) == 0 {
		return 0, "", errors.Join(failed...)
	}
	votes = "votes: " + strings.Join(said, ", ")
	if len(failed) > 0 {
		votes += fmt.Sprintf("; %d more failed", len(failed))
	}
	return sum / float64(len(said)), votes, nil
}

func (j *Judge) vote(ctx context.Context, request []byte, ask Ask) (float64, error) {
	body, err := ask(ctx, request)
	if err != nil {
		return 0, err
	}
	var reply struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(body, &reply); err != nil || len(reply.Choices) == 0 {
		return 0, fmt.Errorf("the model %s answered %.200q, which is no chat completion", j.Model, body)
	}
	vote, ok := parseVote(reply.Choices[0].Message.Content)
	if !ok {
		return 0, fmt.Errorf("the model %s answered %.200q, must end with 1, 0 or -1", j.Model, reply.Choices[0].Message.Content)
	}
	return vote, nil
}

var voteForm = regexp.MustCompile(`(?:^|[^\w.+\-/])([+-]?1|0)(?:\.0+)?\W*$`)

// parseVote reads the number that a text ends with.
func parseVote(text string) (vote float64, ok bool) {
	found := voteForm.FindStringSubmatch(strings.ReplaceAll(text, "\u2212", "-"))
	if found == nil {
		return 0, false
	}
	vote, err := strconv.ParseFloat(found[1], 64)
	return vote, err == nil
}

// maxTranscript bounds how much of a conversation a judge reads: the last bytes.
const maxTranscript = 20_000

func transcript(messages []adapter.Message) string {
	var b strings.Builder
	for i := range messages {
		b.WriteString(messages[i].Role + ": " + spoken(&messages[i]) + "\n")
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) > maxTranscript {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxTranscript:], "")
	}
	return text
}

// spoken returns the text of a message with its tool calls.
func spoken(m *adapter.Message) string {
	parts := []string{m.Text()}
	for _, call := range m.ToolCalls {
		parts = append(parts, "[calls "+call.Function.Name+" "+call.Function.Arguments+"]")
	}
	return strings.TrimSpace(strings.Join(parts, "\n"))
}
