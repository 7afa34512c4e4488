package exchange

import "github.com/agl-go/agl/proxy/openai"

// translator turns one reply of a backend into the form of the agent.
type translator interface {
	// Reply appends the agent's form of a whole reply.
	Reply(dst, whole []byte) ([]byte, error)
	// Event appends the agent's form of the data of one event, and End what is missing
	// after the last one. They fail if the backend's stream is malformed or incomplete.
	Event(dst, data []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
	// Fail appends the event that tells the agent that the stream has failed.
	Fail(dst []byte, e openai.Error) []byte
	// Done reports whether the last event has been appended.
	Done() bool
}

// twoSteps translates by way of Chat Completions.
type twoSteps struct {
	near, far translator // to the agent's form, from the backend's
	events    openai.Events
}

func (t *twoSteps) Reply(dst, whole []byte) ([]byte, error) {
	chat, err := t.far.Reply(nil, whole)
	if err != nil {
		return dst, err
	}
	return t.near.Reply(dst, chat)
}

func (t *twoSteps) Event(dst, data []byte) ([]byte, error) {
	chat, err := t.far.Event(nil, data)
	if err != nil {
		return dst, err
	}
	return t.pass(dst, chat)
}

func (t *twoSteps) pass(dst, chat []byte) (_ []byte, err error) {
	t.events.Write(chat)
	for event := t.events.Next(); event != nil; event = t.events.Next() {
		if dst, err = t.near.Event(dst, openai.Data(event)); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (t *twoSteps) End(dst []byte) ([]byte, error) {
	chat, err := t.far.End(nil)
	if err != nil {
		return dst, err
	}
	if dst, err = t.pass(dst, chat); err != nil {
		return dst, err
	}
	return t.near.End(dst)
}

func (t *twoSteps) Fail(dst []byte, e openai.Error) []byte { return t.near.Fail(dst, e) }

func (t *twoSteps) Done() bool { return t.near.Done() }
