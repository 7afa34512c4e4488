package clients

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
)

// fault is a model whose backend misbehaves while it streams.
type fault struct {
	name   string
	script proxytest.Script
	ends   ending
}

// ending is how a stream ends for a client.
type ending int

const (
	whole  ending = iota // completely, despite the fault
	failed               // with an error
)

const (
	slowness = 300 * time.Millisecond
	// hugeLine is the number of x in one event, before the model's text.
	hugeLine = 2 << 20
)

func faults() []fault {
	says := proxytest.Model(model).VLLM()
	slow := func(ctx context.Context) error {
		select {
		case <-time.After(slowness):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	mistyped := func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		reply := says(ctx, r)
		if len(reply.Pieces) > 0 { // a stream
			reply.ContentType = "text/plain"
		}
		return reply
	}
	huge := `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"huge","choices":[{"index":0,"delta":{"content":"` +
		strings.Repeat("x", hugeLine) + `"},"finish_reason":null}]}` + "\n\n"
	return []fault{
		{"slow", proxytest.SlowHeaders(says, slow), whole},
		{"huge", proxytest.Insert(says, 1, huge), whole},
		{"commented", proxytest.Insert(says, 1, ": "+strings.Repeat("y", hugeLine)+"\n\n"), whole},
		{"bytewise", proxytest.Chopped(says, 1), whole},
		{"broken", proxytest.Cut(says, 4), failed},
		{"reset", proxytest.Reset(says, 4), failed},
		{"malformed", proxytest.Insert(says, 4, "data: {\"choices\":[\n\n"), failed},
		{"mistyped", mistyped, whole},
	}
}

// names are those of faults, for the programs.
func names(ends ending) string {
	var list []string
	for _, f := range faults() {
		if f.ends == ends {
			list = append(list, f.name)
		}
	}
	return strings.Join(list, " ")
}

// checkFaults checks the records of calls at backends that misbehave: each fault must have
// occurred, and must be recorded as one.
func (b *bench) checkFaults(t *testing.T) {
	t.Helper()
	met := make(map[string]int)
	for _, s := range b.spans.named(agl.SpanLiteLLMRequest) {
		name, _ := s.Attributes.GetString(agl.AttrGenAIRequest + ".model")
		all := faults()
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
		if i < 0 {
			continue
		}
		met[name]++
		if first, ok := s.Attributes.GetFloat(record.AttrFirstByteSeconds); name == "slow" && (!ok || first < slowness.Seconds()) {
			t.Errorf("slow: the record has its first byte after %v s", first)
		}
		_, stream := s.Attributes.Get(agl.AttrGenAIRequest + ".stream")
		if fine := s.Status.Code == agl.StatusOK; stream && fine != (all[i].ends == whole) {
			t.Errorf("%s: recorded as %+v", name, s.Status)
		}
	}
	for _, f := range faults() {
		if met[f.name] == 0 {
			t.Errorf("%s: no call on record", f.name)
		}
	}
}
