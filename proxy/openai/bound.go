package openai

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agl-go/agl/internal/rawjson"
)

// DefaultOutput is the output limit, in tokens, of a request that sets none, if its caller has a
// budget.
const DefaultOutput = 4096

// maxOutput bounds the numbers in a request, so that their product fits an int64.
const maxOutput = math.MaxInt32

// BoundOutput returns an upper bound of the tokens of the replies to a request: its output limit
// times the number of replies and of prompts. It also returns the body; if that has no output
// limit that every backend of its API obeys, which is member, or max_tokens of a chat completion,
// then the limit is added under the name member, or DefaultOutput if there is none. A body that refers to text outside of it
// is refused, because the length of that text is unknown. The error is an *Error.
//
// The case of member names is ignored, as some servers ignore it.
func BoundOutput(body []byte, member string) (bound []byte, output int64, err error) {
	var choices, prompts int64 = 1, 1
	var wrong *Error
	obeyed := "" // the name of a limit that the backend obeys
	refuse := func(name, format string, args ...any) {
		wrong = NewError(http.StatusBadRequest, InvalidRequestError, "invalid_body", name+": "+fmt.Sprintf(format, args...)+", because the key of this call has a budget")
		wrong.Param = name
	}
	number := func(name string, value []byte, to *int64) {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 1 || n > maxOutput {
			refuse(name, "got %.40s, must be a number between 1 and %d", value, maxOutput)
			return
		}
		*to = max(*to, n)
	}
	Members(body, func(raw, value []byte) {
		name := rawjson.UnquoteName(raw)
		if string(value) == "null" {
			if name == obeyed { // of two members of one name, backends take the last
				obeyed = ""
			}
			return
		}
		is := func(names ...string) bool {
			return slices.ContainsFunc(names, func(one string) bool { return strings.EqualFold(one, name) })
		}
		switch {
		case is("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict", "num_predict"):
			number(name, value, &output)
			if name == member || name == "max_tokens" && member == "max_completion_tokens" {
				obeyed = name
			}
		case is("n", "best_of"):
			number(name, value, &choices)
		case is("prompt"):
			if value[0] == '{' { // a prompt that is stored at OpenAI
				refuse(name, "got an object, must be the text")
				return
			}
			prompts = max(prompts, int64(countPrompts(value)))
		case is("previous_response_id", "conversation"):
			refuse(name, "got %.40s, must be left out: send the text itself", value)
		}
	})
	if wrong != nil {
		return nil, 0, wrong
	}
	output = cmp.Or(output, DefaultOutput)
	if obeyed == "" {
		body = withMember(body, member, strconv.FormatInt(output, 10))
	}
	if choices > maxOutput/prompts {
		return nil, 0, NewError(http.StatusBadRequest, InvalidRequestError, "invalid_body", fmt.Sprintf("n: %d replies to %d prompts are too many", choices, prompts))
	}
	return body, output * choices * prompts, nil
}

// PromptBound returns an upper bound of the tokens of the prompt in a request: the bytes of the
// body, with each escape counted as the bytes of the character that it stands for. No tokenizer
// makes more tokens of a text than it has bytes, and the members around a message have more bytes
// than the tokens that a chat format puts there. The body need not be valid.
func PromptBound(body []byte) int64 {
	n := len(body)
	for i := 0; i < len(body); i++ { // a backslash occurs in strings only
		if body[i] != '\\' {
			continue
		}
		raw, stands := escape(body[i:])
		n -= raw - stands
		i += raw - 1
	}
	return int64(n)
}

// unicodeEscape is the length of \uXXXX.
const unicodeEscape = 6

// escape returns how many bytes the escape at the start of s has, and the character that it stands
// for.
func escape(s []byte) (raw, stands int) {
	first, ok := codeUnit(s)
	switch {
	case !ok:
		return min(2, len(s)), 1 //nolint:mnd // a backslash and a character
	case utf16.IsSurrogate(first):
		if SurrogatePair(s) != utf8.RuneError {
			return 2 * unicodeEscape, utf8.UTFMax
		}
		first = utf8.RuneError
	}
	return unicodeEscape, utf8.RuneLen(first)
}

// SurrogatePair returns the character of the two escapes at the start of s, or U+FFFD if they are not those of a surrogate pair.
func SurrogatePair(s []byte) rune {
	first, ok := codeUnit(s)
	if !ok {
		return utf8.RuneError
	}
	second, _ := codeUnit(s[unicodeEscape:])
	return utf16.DecodeRune(first, second)
}

// codeUnit reads \uXXXX.
func codeUnit(s []byte) (unit rune, ok bool) {
	if len(s) < unicodeEscape || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s[2:unicodeEscape]), 16, 16)
	return rune(n), err == nil
}

// withMember returns an object with one more member. A body that is not an object is returned
// unchanged; ParseRequest refuses it.
func withMember(body []byte, name, value string) []byte {
	const space = " \n\t\r"
	inner, ok := bytes.CutSuffix(bytes.TrimRight(body, space), []byte("}"))
	if !ok || len(inner) == 0 {
		return body
	}
	member := `"` + name + `":` + value + "}"
	if inner = bytes.TrimRight(inner, space); inner[len(inner)-1] != '{' {
		member = "," + member
	}
	return append(append(make([]byte, 0, len(inner)+len(member)), inner...), member...)
}

// AppendTokenize appends the request with which vLLM's /tokenize counts the prompt of a request for
// a chat completion or a completion. It has the members that shape the prompt.
func AppendTokenize(dst, body []byte) []byte {
	o := rawjson.NewObject(dst)
	Members(body, func(raw, value []byte) {
		switch name := rawjson.UnquoteName(raw); name {
		case "model", "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "documents",
			"add_special_tokens", "mm_processor_kwargs", "prompt":
			o.Raw(name, value)
		}
	})
	return o.End()
}
