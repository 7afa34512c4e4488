package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// slotBytes is the size of a slot: the length of the mark, its CRC-32C, both
// little-endian, and the mark. A slot of zeros is free.
const (
	slotBytes = 512
	marksName = "marks"
)

// MaxMark is the maximum length of a mark, in bytes.
const MaxMark = slotBytes - headerBytes

// Marks is a table on disk of work in progress. A mark that exists when the table is
// opened belongs to work that ended with the process that set it. It is safe for
// concurrent use.
type Marks struct {
	file *os.File

	mu    sync.Mutex
	slots int64
	free  []int64
}

// OpenMarks opens the table of a directory in which this process has opened a [Log]. It
// calls found with each existing mark and the slot by which it is cleared.
func OpenMarks(dir string, found func(slot int64, mark []byte)) (*Marks, error) {
	f, err := os.OpenFile(filepath.Join(dir, marksName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	m := &Marks{file: f}
	content, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %w", err), f.Close())
	}
	m.slots = int64(len(content) / slotBytes)
	for i := range m.slots {
		slot := content[i*slotBytes : (i+1)*slotBytes]
		length := int(binary.LittleEndian.Uint32(slot))
		if length == 0 || length > MaxMark || crc32.Checksum(slot[headerBytes:headerBytes+length], table) != binary.LittleEndian.Uint32(slot[4:]) {
			m.free = append(m.free, i)
			continue
		}
		found(i, slot[headerBytes:headerBytes+length])
	}
	return m, nil
}

// Set sets a mark of 1 to MaxMark bytes and returns its slot.
func (m *Marks) Set(mark []byte) (slot int64, err error) {
	if len(mark) == 0 || len(mark) > MaxMark {
		return 0, fmt.Errorf("spool: a mark of %d bytes, must have 1 to %d", len(mark), MaxMark)
	}
	var room [slotBytes]byte
	buf := binary.LittleEndian.AppendUint32(room[:0], uint32(len(mark)))
	buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(mark, table))
	buf = append(buf, mark...)
	m.mu.Lock()
	if n := len(m.free); n > 0 {
		slot, m.free = m.free[n-1], m.free[:n-1]
	} else {
		slot = m.slots
		m.slots++
		buf = room[:] // the file grows by whole slots
	}
	m.mu.Unlock()
	if _, err := m.file.WriteAt(buf, slot*slotBytes); err != nil {
		m.release(slot)
		return 0, fmt.Errorf("spool: %w", err)
	}
	return slot, nil
}

// Clear removes a mark.
func (m *Marks) Clear(slot int64) error {
	var zero [headerBytes]byte
	if _, err := m.file.WriteAt(zero[:], slot*slotBytes); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("spool: %w", err)
	}
	m.release(slot)
	return nil
}

func (m *Marks) release(slot int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, slot)
}

// Close closes the table. Marks that are set stay.
func (m *Marks) Close() error { return m.file.Close() }
