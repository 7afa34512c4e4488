package tokenizer

import (
	"sync"
	"unicode/utf8"
)

// charClass is the classes of a character in the reference's regular expressions.
type charClass uint8

const (
	letter charClass = 1 << iota // \p{L}
	number                       // \p{N}
	mark                         // \p{M}
	symbol                       // \p{P} or \p{S}
	space                        // \s
)

// classTable holds the classes of every character.
var classTable = sync.OnceValue(func() *[utf8.MaxRune + 1]charClass {
	table := new([utf8.MaxRune + 1]charClass)
	for i, run := range classRuns {
		end := uint32(len(table))
		if i+1 < len(classRuns) {
			end = classRuns[i+1] >> 8
		}
		for c := run >> 8; c < end; c++ {
			table[c] = charClass(run)
		}
	}
	return table
})
