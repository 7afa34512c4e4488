package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// maxSampledReplies bounds the replies that are kept.
const maxSampledReplies = 1024

// sampledReplies holds the ids of replies whose text does not determine them. The zero value is empty.
type sampledReplies struct {
	mu    sync.Mutex
	ids   map[replyKey][]int32
	order []replyKey // the oldest first
}

// replyKey is what a later request knows of a reply: its text, and the digest of the prompt before it.
type replyKey struct {
	prompt [sha256.Size]byte
	text   string
}

func newReplyKey(prompt []int32, text string) replyKey {
	b, _ := binary.Append(nil, binary.LittleEndian, prompt) // numbers of a fixed size
	return replyKey{sha256.Sum256(b), text}
}

func (s *sampledReplies) add(prompt []int32, text string, reply []int32) {
	key := newReplyKey(prompt, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[replyKey][]int32{}
	}
	if _, ok := s.ids[key]; !ok {
		s.order = append(s.order, key)
	}
	s.ids[key] = slices.Clone(reply)
	if len(s.order) > maxSampledReplies {
		delete(s.ids, s.order[0])
		s.order = s.order[1:]
	}
}

// find returns a copy of the ids of a reply; nil if there is none.
func (s *sampledReplies) find(prompt []int32, text string) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return nil
	}
	return slices.Clone(s.ids[newReplyKey(prompt, text)])
}
