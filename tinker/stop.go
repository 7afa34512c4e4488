package tinker

import (
	"sort"
	"strings"
)

// FirstStop returns the number of tokens up to the one that completes the first stop text; -1 if their text contains none.
// Later tokens do not affect earlier ones, so that a sampler need not know the texts: the completion is shortened
// afterwards.
//
// The text of more tokens may be shorter: each byte of an incomplete character is U+FFFD.
func FirstStop(decode func(ids []int32) string, tokens []int32, stops []string) int {
	stopped := func(n int) bool {
		text := decode(tokens[:n])
		for _, stop := range stops {
			if strings.Contains(text, stop) {
				return true
			}
		}
		return false
	}
	if len(stops) == 0 || !stopped(len(tokens)) {
		return -1
	}
	return sort.Search(len(tokens), stopped)
}
