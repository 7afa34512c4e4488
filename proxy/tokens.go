package proxy

import "math"

// readIDs reads a list of integers, valid as JSON; anything else is nil.
func readIDs(raw []byte) []int32 {
	if len(raw) < 3 || raw[0] != '[' {
		return nil
	}
	ids := make([]int32, 0, len(raw)/4)
	for i := 1; i < len(raw)-1; i++ { // up to the bracket, over what separates
		switch raw[i] {
		case ',', ' ', '\n', '\t', '\r':
			continue
		}
		start, sign := i, int64(1)
		if raw[i] == '-' {
			start, sign = i+1, -1
		}
		n := int64(0)
		for i = start; '0' <= raw[i] && raw[i] <= '9' && n <= math.MaxInt32; i++ {
			n = 10*n + int64(raw[i]-'0')
		}
		switch {
		case i == start || n > math.MaxInt32:
			return nil
		case raw[i] == '.' || raw[i] == 'e' || raw[i] == 'E':
			return nil
		}
		ids = append(ids, int32(sign*n))
	}
	return ids
}

// given reports whether the backend gave the ids of a prompt and of a reply.
func (t *tokens) given() bool {
	return len(t.prompt) > 0 && len(t.replies) > 0 && len(t.replies[0]) > 0
}

// drift returns the first index at which a prompt parts from previous prompt
// and reply ids, for the choice that it follows furthest; -1 when it extends them.
func drift(previous *tokens, prompt []int32) int {
	n := common(previous.prompt, prompt)
	if n < len(previous.prompt) {
		return n
	}
	furthest := n
	for _, reply := range previous.replies {
		m := common(reply, prompt[n:])
		if m == len(reply) {
			return -1
		}
		furthest = max(furthest, n+m)
	}
	return furthest
}

func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
