package tinker

import (
	"sort"
	"strings"
)

// FirstStop returns how many tokens there are up to the one with which the first of the stop texts is complete; -1
// if none is in their text. What was drawn after that token has no part in what was drawn before, so that a sampler
// need not know of the texts.
//
// A longer prefix of tokens may well have a shorter text: bytes that are no character yet become U+FFFD each.
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
