package tokenizer

import (
	"unicode/utf8"
)

// splitter divides text into the pieces that are encoded one by one. It returns the length of the first piece of text, which
// is not empty.
//
// The reference uses regular expressions, in which the first branch that matches is taken. Those of the known models have
// lookahead, which Go's do not, and are simple enough to write by hand.
type splitter func(table *charClasses, text string) int

// The regular expressions that are known, by their text.
const (
	// cl100k is the split of GPT-4's encoding; that of Qwen takes single digits, that of Llama 3 up to three.
	cl100kHead  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|`
	cl100kTail  = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	oneDigit    = cl100kHead + `\p{N}` + cl100kTail
	threeDigits = cl100kHead + `\p{N}{1,3}` + cl100kTail

	// DeepSeek V3 has three splits; each divides the pieces of the one before.
	deepSeekDigits = `\p{N}{1,3}`
	deepSeekCJK    = "[一-龥\u3040-ゟ゠-ヿ]+"
	deepSeekWords  = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
		" ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// at returns the first character of text and its length, which is 0 if text is empty.
func at(text string) (rune, int) {
	if len(text) > 0 && text[0] < utf8.RuneSelf {
		return rune(text[0]), 1
	}
	c, n := utf8.DecodeRuneInString(text)
	return c, n
}

// span returns the length of the characters at the start of text that are in one of the classes want, or in none of them if
// not is set.
func span(table *charClasses, text string, want charClass, not bool) int {
	for i := 0; i < len(text); {
		c, n := at(text[i:])
		if (table[c]&want != 0) == not {
			return i
		}
		i += n
	}
	return len(text)
}

// contraction returns the length of an English contraction at the start of text, in either case. The long s (ſ) counts as
// an s.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch c := text[1] | 0x20; c {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(text) < 3 {
			return 0
		}
		next := byte('e')
		if c == 'l' {
			next = 'l'
		}
		if text[2]|0x20 == next {
			return 3
		}
	case 0xe5: // the first byte of ſ, with the bit that makes ASCII letters lower case
		if len(text) > 2 && text[1:3] == "ſ" {
			return 3
		}
	}
	return 0
}

func isNewline(c byte) bool { return c == '\r' || c == '\n' }

// newlines returns the length of the newlines at the start of text.
func newlines(text string) int {
	n := 0
	for n < len(text) && isNewline(text[n]) {
		n++
	}
	return n
}

// blanks returns the length of the first piece of text that begins with white space: up to the last newline of the white
// space, if it has one; else all of it, but for the last blank before a word, which belongs to the word.
func blanks(table *charClasses, text string) int {
	run := span(table, text, space, false)
	for i := run; i > 0; i-- {
		if isNewline(text[i-1]) {
			return i
		}
	}
	if run == len(text) {
		return run
	}
	if _, n := utf8.DecodeLastRuneInString(text[:run]); n < run {
		return run - n
	}
	return run
}

// cl100k returns the splitter of the cl100k family.
func cl100k(maxDigits int) splitter {
	return func(table *charClasses, text string) int {
		c, n := at(text)
		class := table[c]
		if c == '\'' {
			if n := contraction(text); n > 0 {
				return n
			}
		}
		switch {
		case class&letter != 0:
			return n + span(table, text[n:], letter, false)
		case class&number != 0:
			return digits(table, text, maxDigits)
		}
		if c != '\r' && c != '\n' {
			if word := span(table, text[n:], letter, false); word > 0 {
				return n + word
			}
		}
		begin := 0
		if c == ' ' {
			begin = 1
		}
		if other := span(table, text[begin:], letter|number|space, true); other > 0 {
			other += begin
			return other + newlines(text[other:])
		}
		return blanks(table, text)
	}
}

// digitGroups divides numbers into groups of three digits.
func digitGroups(table *charClasses, text string) int {
	if n := digits(table, text, 3); n > 0 {
		return n
	}
	return span(table, text, number, true)
}

// digits returns the length of the digits at the start of text, counting at most limit of them.
func digits(table *charClasses, text string, limit int) (n int) {
	for range limit {
		c, size := at(text[n:])
		if size == 0 || table[c]&number == 0 {
			break
		}
		n += size
	}
	return n
}

func isCJK(c rune) bool { return c >= 0x4e00 && c <= 0x9fa5 || c >= 0x3040 && c <= 0x30ff }

// cjkRuns isolates runs of Chinese characters and Japanese syllables.
func cjkRuns(_ *charClasses, text string) int {
	first, n := at(text)
	in := isCJK(first)
	for n < len(text) {
		c, m := at(text[n:])
		if isCJK(c) != in {
			break
		}
		n += m
	}
	return n
}

func isASCIILetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// deepSeekWord is the last of DeepSeek's splits. What none of its branches matches, up to the next match, is a piece too.
func deepSeekWord(table *charClasses, text string) int {
	if n := deepSeekMatch(table, text); n > 0 {
		return n
	}
	for i := 0; i < len(text); {
		_, n := at(text[i:])
		i += n
		if i < len(text) && deepSeekMatch(table, text[i:]) > 0 {
			return i
		}
	}
	return len(text)
}

func deepSeekMatch(table *charClasses, text string) int {
	c, n := at(text)
	class := table[c]
	if c < utf8.RuneSelf && class&symbol != 0 {
		i := 1
		for i < len(text) && isASCIILetter(text[i]) {
			i++
		}
		if i > 1 {
			return i
		}
	}
	if class&(letter|mark) != 0 {
		return n + span(table, text[n:], letter|mark, false)
	}
	if c != '\r' && c != '\n' && class&symbol == 0 {
		if word := span(table, text[n:], letter|mark, false); word > 0 {
			return n + word
		}
	}
	begin := 0
	if c == ' ' {
		begin = 1
	}
	if other := span(table, text[begin:], symbol, false); other > 0 {
		other += begin
		return other + newlines(text[other:])
	}
	if class&space != 0 {
		return blanks(table, text)
	}
	return 0
}
