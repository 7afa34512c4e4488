package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// mostReplies bounds the replies that are remembered.
const mostReplies = 1024

// replyMemory holds the ids of replies. The zero value is empty.
type replyMemory struct {
	mu      sync.Mutex
	replies map[said][]int32
	order   []said // the oldest first
}

// said is a reply as a later request brings it: its text, and what was said before.
type said struct {
	prompt [sha256.Size]byte
	text   string
}

func newSaid(prompt []int32, text string) said {
	b := make([]byte, 0, 4*len(prompt))
	for _, id := range prompt {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return said{sha256.Sum256(b), text}
}

func (m *replyMemory) keep(prompt []int32, text string, reply []int32) {
	key := newSaid(prompt, text)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.replies == nil {
		m.replies = map[said][]int32{}
	}
	if _, ok := m.replies[key]; !ok {
		m.order = append(m.order, key)
	}
	m.replies[key] = slices.Clone(reply)
	if len(m.order) > mostReplies {
		delete(m.replies, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
}

// recall returns a copy of the ids of a reply; nil if it is not remembered.
func (m *replyMemory) recall(prompt []int32, text string) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replies) == 0 {
		return nil
	}
	return slices.Clone(m.replies[newSaid(prompt, text)])
}
