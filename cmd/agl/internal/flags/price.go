package flags

import (
	"fmt"
	"strconv"
	"strings"
)

// Price is what the tokens of a model cost, in dollars per million: PROMPT,COMPLETION.
type Price struct{ Prompt, Completion float64 }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Price) UnmarshalText(text []byte) error {
	prompt, completion, two := strings.Cut(string(text), ",")
	for _, part := range []struct {
		text string
		to   *float64
	}{{prompt, &p.Prompt}, {completion, &p.Completion}} {
		n, err := strconv.ParseFloat(part.text, 64)
		if err != nil || !two || !(n >= 0 && n <= mostPrice) { // also rejects NaN
			return fmt.Errorf("got %q, must be PROMPT,COMPLETION in dollars per million tokens, such as 0.15,0.6", text)
		}
		*part.to = n
	}
	return nil
}

// mostPrice bounds a price, in dollars per million tokens.
const mostPrice = 1e6
