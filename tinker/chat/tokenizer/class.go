package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
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

// charClasses holds the classes of every character.
type charClasses [utf8.MaxRune + 1]charClass

// classTable holds the classes of every character in Unicode 16, the version of the reference.
var classTable = sync.OnceValue(func() *charClasses {
	table := new(charClasses)
	known := rangetable.Assigned("15.0.0") // Package unicode may know a later version.
	for _, c := range []struct {
		class   charClass
		members *unicode.RangeTable
	}{
		{letter, unicode.L}, {number, unicode.N}, {mark, unicode.M}, {symbol, unicode.P}, {symbol, unicode.S}, {space, unicode.White_Space},
	} {
		rangetable.Visit(c.members, func(char rune) {
			if unicode.Is(known, char) {
				table[char] |= c.class
			}
		})
	}
	for _, c := range classesSince15() {
		for char := c.first; char <= c.last; char++ {
			table[char] = c.class
		}
	}
	return table
})

type classRange struct {
	first, last rune
	class       charClass
}

// classesSince15 returns the characters that Unicode got with its versions 15.1 and 16.
func classesSince15() []classRange {
	return []classRange{
		{0x897, 0x897, mark}, {0x1b4e, 0x1b4f, symbol}, {0x1b7f, 0x1b7f, symbol}, {0x1c89, 0x1c8a, letter},
		{0x2427, 0x2429, symbol}, {0x2ffc, 0x2fff, symbol}, {0x31e4, 0x31e5, symbol}, {0x31ef, 0x31ef, symbol},
		{0xa7cb, 0xa7cd, letter}, {0xa7da, 0xa7dc, letter}, {0x105c0, 0x105f3, letter}, {0x10d40, 0x10d49, number},
		{0x10d4a, 0x10d65, letter}, {0x10d69, 0x10d6d, mark}, {0x10d6e, 0x10d6e, symbol}, {0x10d6f, 0x10d85, letter},
		{0x10d8e, 0x10d8f, symbol}, {0x10ec2, 0x10ec4, letter}, {0x10efc, 0x10efc, mark}, {0x11380, 0x11389, letter},
		{0x1138b, 0x1138b, letter}, {0x1138e, 0x1138e, letter}, {0x11390, 0x113b5, letter},
		{0x113b7, 0x113b7, letter}, {0x113b8, 0x113c0, mark}, {0x113c2, 0x113c2, mark}, {0x113c5, 0x113c5, mark},
		{0x113c7, 0x113ca, mark}, {0x113cc, 0x113d0, mark}, {0x113d1, 0x113d1, letter}, {0x113d2, 0x113d2, mark},
		{0x113d3, 0x113d3, letter}, {0x113d4, 0x113d5, symbol}, {0x113d7, 0x113d8, symbol}, {0x113e1, 0x113e2, mark},
		{0x116d0, 0x116e3, number}, {0x11bc0, 0x11be0, letter}, {0x11be1, 0x11be1, symbol},
		{0x11bf0, 0x11bf9, number}, {0x11f5a, 0x11f5a, mark}, {0x13460, 0x143fa, letter}, {0x16100, 0x1611d, letter},
		{0x1611e, 0x1612f, mark}, {0x16130, 0x16139, number}, {0x16d40, 0x16d6c, letter}, {0x16d6d, 0x16d6f, symbol},
		{0x16d70, 0x16d79, number}, {0x18cff, 0x18cff, letter}, {0x1cc00, 0x1ccef, symbol},
		{0x1ccf0, 0x1ccf9, number}, {0x1cd00, 0x1ceb3, symbol}, {0x1e5d0, 0x1e5ed, letter}, {0x1e5ee, 0x1e5ef, mark},
		{0x1e5f0, 0x1e5f0, letter}, {0x1e5f1, 0x1e5fa, number}, {0x1e5ff, 0x1e5ff, symbol},
		{0x1f8b2, 0x1f8bb, symbol}, {0x1f8c0, 0x1f8c1, symbol}, {0x1fa89, 0x1fa89, symbol},
		{0x1fa8f, 0x1fa8f, symbol}, {0x1fabe, 0x1fabe, symbol}, {0x1fac6, 0x1fac6, symbol},
		{0x1fadc, 0x1fadc, symbol}, {0x1fadf, 0x1fadf, symbol}, {0x1fae9, 0x1fae9, symbol},
		{0x1fbcb, 0x1fbef, symbol}, {0x2ebf0, 0x2ee5d, letter},
	}
}
