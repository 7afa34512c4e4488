package apotest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/agl-go/agl/algorithm/apo"
)

const (
	more = "Say this once more: "
	less = "Say this less often: "
)

// usage is the usage of each call.
func usage() apo.Usage { return apo.Usage{PromptTokens: 100, CompletionTokens: 10} }

// Criticise is a model that asks for one more or one fewer of a phrase. The seed of the request
// decides which. It knows what can be changed, but not what helps.
func (w World) Criticise(_ context.Context, r apo.Request) (apo.Reply, error) {
	const stream = 1
	return apo.Reply{Text: w.Critique(rand.NewPCG(r.Seed, stream)), Usage: usage()}, nil
}

// Critique draws a critique.
func (w World) Critique(source rand.Source) string {
	r := rand.New(source)
	return []string{more, less}[r.IntN(2)] + w.Phrases[r.IntN(len(w.Phrases))]
}

// Edit is a model that does what the critique in the request says.
func Edit(_ context.Context, r apo.Request) (apo.Reply, error) {
	text, err := Edited(r.Messages[len(r.Messages)-1].Content)
	return apo.Reply{Text: text, Usage: usage()}, err
}

var (
	prompt   = regexp.MustCompile(regexp.QuoteMeta(head) + `.*?` + regexp.QuoteMeta(tail))
	critique = regexp.MustCompile(`(` + more + `|` + less + `)([^.]*\.)`)
)

// Edited returns the prompt in a request, edited as the critique in the request says. A
// prompt without the phrase to remove stays as it is.
func Edited(request string) (string, error) {
	text, asked := prompt.FindString(request), critique.FindStringSubmatch(request)
	if text == "" || asked == nil {
		return "", fmt.Errorf("apotest: no prompt and critique in %q", request)
	}
	if asked[1] == more {
		return strings.TrimSuffix(text, tail) + asked[2] + " " + tail, nil
	}
	return strings.Replace(text, asked[2]+" ", "", 1), nil
}
