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

// usage is what each call is said to have taken.
func usage() apo.Usage { return apo.Usage{PromptTokens: 100, CompletionTokens: 10} }

// Criticise is a model that asks for a phrase of the world more, or for one less,
// as the request's seed decides: it knows what can be changed and not what helps.
func (w World) Criticise(_ context.Context, r apo.Request) (apo.Reply, error) {
	const stream = 1
	return apo.Reply{Text: w.Critique(rand.NewPCG(r.Seed, stream)), Usage: usage()}, nil
}

// Critique draws one.
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

// Edited is the prompt in a request, edited as the critique in it says. A phrase
// that is to be said less often and is not said leaves the prompt as it is.
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
