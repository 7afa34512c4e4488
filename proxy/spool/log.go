package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/internal/filelock"
)

// ErrFull is returned by [Log.AppendAt] when the records do not fit.
var ErrFull = errors.New("the spool is full")

// ErrMoved is returned by [Log.AppendAt] when the next record would be at another place.
var ErrMoved = errors.New("the end of the spool has moved")

// ErrInUse is returned by [Open] when another process has locked the directory.
var ErrInUse = errors.New("another process uses the spool")

const (
	// An entry is the length of the record and its CRC-32C, little-endian, and
	// then the record.
	headerBytes    = 8
	maxRecordBytes = 1 << 30
	suffix         = ".spool"
	lockName       = "lock"
	// A new segment is begun at an eighth of the limit, but between these sizes. The space
	// of a segment is freed when its last record is done.
	minSegmentBytes = 64 << 10
	maxSegmentBytes = 16 << 20
)

// Ref is the place of a record.
type Ref struct {
	segment uint64
	offset  int64
	length  int
}

// Segment returns the number of the record's segment. Until all records of a segment are done, each of
// them can be read.
func (r Ref) Segment() uint64 { return r.segment }

// Offset returns where in its segment the record begins.
func (r Ref) Offset() int64 { return r.offset }

// After returns where in its segment the next record begins, after a record of some length at an offset.
func After(offset int64, length int) int64 { return offset + headerBytes + int64(length) }

// Log is a list of records in segment files. Records are read by their [Ref]s, in any
// order. The file of a segment is removed when all of its records are done. It is safe
// for concurrent use.
type Log struct {
	dir      string
	limit    int64
	rotateAt int64
	lock     *os.File

	mu       sync.Mutex
	segments map[uint64]*segment
	current  *segment // open for writing, or nil
	next     uint64
	used     int64
	damaged  int64
	closed   bool
}

type segment struct {
	number  uint64
	file    *os.File // for writing and reading
	size    int64
	pending int // records that are not done
}

var table = crc32.MakeTable(crc32.Castagnoli)

// Open opens the log in a directory, which it creates if it is missing, with at most
// limit bytes of records. It calls found with each record that an earlier process left,
// in the order in which they were appended; the slice is valid during the call. A
// record that a crash left half written at the end of a segment is dropped, because
// AppendAt had not returned for it.
func Open(dir string, limit int64, found func(ref Ref, record []byte) error) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	lock, err := lockDir(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("spool %s: %w", dir, err)
	}
	l := &Log{
		dir: dir, limit: limit, lock: lock, segments: make(map[uint64]*segment), next: 1,
		rotateAt: min(max(limit/8, minSegmentBytes), maxSegmentBytes),
	}
	if err := l.recover(found); err != nil {
		return nil, errors.Join(fmt.Errorf("spool %s: %w", dir, err), l.Close())
	}
	return l, nil
}

// lockDir locks a directory until the process ends.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	free, err := filelock.Try(f)
	if err == nil && !free {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// recover reads the existing segments.
func (l *Log) recover(found func(ref Ref, record []byte) error) error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	var numbers []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		number, err := strconv.ParseUint(name, 10, 64)
		if ok && err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		if err := l.recoverSegment(number, found); err != nil {
			return fmt.Errorf("segment %d: %w", number, err)
		}
		l.next = number + 1
	}
	return nil
}

func (l *Log) recoverSegment(number uint64, found func(ref Ref, record []byte) error) error {
	content, err := os.ReadFile(l.path(number))
	if err != nil {
		return err
	}
	s := &segment{number: number, size: int64(len(content))}
	at := 0
	for at+headerBytes <= len(content) {
		length := int(binary.LittleEndian.Uint32(content[at:]))
		sum := binary.LittleEndian.Uint32(content[at+4:])
		end := at + headerBytes + length
		// Zeros at the end of a file that had no time to be written are no records.
		if length == 0 || length > maxRecordBytes || end > len(content) || crc32.Checksum(content[at+headerBytes:end], table) != sum {
			break
		}
		s.pending++
		if err := found(Ref{number, int64(at), length}, content[at+headerBytes:end]); err != nil {
			return err
		}
		at = end
	}
	l.damaged += int64(len(content) - at)
	if s.pending == 0 {
		return os.Remove(l.path(number))
	}
	if s.file, err = os.Open(l.path(number)); err != nil {
		return err
	}
	l.segments[number] = s
	l.used += s.size
	return nil
}

func (l *Log) path(number uint64) string {
	return filepath.Join(l.dir, fmt.Sprintf("%020d%s", number, suffix))
}

// Next returns the place at which the next record will be, with a length of 0.
func (l *Log) Next() (Ref, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Ref{}, fmt.Errorf("spool: %w", fs.ErrClosed)
	}
	if err := l.rotate(); err != nil {
		return Ref{}, fmt.Errorf("spool: %w", err)
	}
	return Ref{segment: l.current.number, offset: l.current.size}, nil
}

// AppendAt adds all records, which must not be empty, or none, with one write and one sync. The records may refer to their
// own places: the error is ErrMoved unless the first one gets the place at, which Next has returned. It is ErrFull when there is no room, or an
// error of the disk.
func (l *Log) AppendAt(at Ref, records [][]byte) ([]Ref, error) {
	need := int64(0)
	for _, r := range records {
		if len(r) == 0 || len(r) > maxRecordBytes {
			return nil, fmt.Errorf("spool: a record of %d bytes, must have 1 to %d", len(r), maxRecordBytes)
		}
		need += headerBytes + int64(len(r))
	}
	buf := make([]byte, 0, need)
	for _, r := range records {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(r)))
		buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(r, table))
		buf = append(buf, r...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("spool: %w", fs.ErrClosed)
	}
	if l.used+need > l.limit {
		return nil, ErrFull
	}
	if err := l.rotate(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := l.current
	if at.segment != s.number || at.offset != s.size {
		return nil, ErrMoved
	}
	if err := writeSynced(s.file, buf, s.size); err != nil {
		// The end of the segment is now undefined, so nothing more is written to it.
		l.retire()
		return nil, fmt.Errorf("spool: %w", err)
	}
	refs := make([]Ref, len(records))
	for i, r := range records {
		refs[i] = Ref{s.number, s.size, len(r)}
		s.size += headerBytes + int64(len(r))
	}
	s.pending += len(records)
	l.used += need
	return refs, nil
}

func writeSynced(f *os.File, buf []byte, at int64) error {
	if _, err := f.WriteAt(buf, at); err != nil {
		return err
	}
	return f.Sync()
}

// rotate makes sure that there is a segment to write to.
func (l *Log) rotate() error {
	if l.current != nil && l.current.size < l.rotateAt {
		return nil
	}
	if l.current != nil {
		l.retire()
	}
	number := l.next
	f, err := os.OpenFile(l.path(number), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	// The name of the file must be as durable as its records.
	if err := durable.SyncDir(l.dir); err != nil {
		return errors.Join(err, f.Close(), os.Remove(l.path(number)))
	}
	l.next++
	l.current = &segment{number: number, file: f}
	l.segments[number] = l.current
	return nil
}

// retire ends writing to the current segment.
func (l *Log) retire() {
	s := l.current
	l.current = nil
	if s.pending == 0 {
		l.drop(s)
	}
}

// drop removes a segment. If its file cannot be removed, its records are found and
// delivered again when the log is opened the next time.
func (l *Log) drop(s *segment) {
	delete(l.segments, s.number)
	l.used -= s.size
	_ = s.file.Close()
	_ = os.Remove(l.path(s.number))
}

// At returns the place of the record at an offset of another record's segment.
func (l *Log) At(other Ref, offset int64) (Ref, error) {
	l.mu.Lock()
	s := l.segments[other.segment]
	l.mu.Unlock()
	if s == nil {
		return Ref{}, fmt.Errorf("spool: segment %d: %w", other.segment, fs.ErrNotExist)
	}
	var header [headerBytes]byte
	if _, err := s.file.ReadAt(header[:], offset); err != nil {
		return Ref{}, fmt.Errorf("spool: segment %d: %w", other.segment, err)
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length > maxRecordBytes {
		return Ref{}, fmt.Errorf("spool: segment %d: there is no record at byte %d", other.segment, offset)
	}
	return Ref{other.segment, offset, int(length)}, nil
}

// Read returns a record.
func (l *Log) Read(ref Ref) ([]byte, error) {
	l.mu.Lock()
	s := l.segments[ref.segment]
	l.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("spool: segment %d: %w", ref.segment, fs.ErrNotExist)
	}
	buf := make([]byte, headerBytes+ref.length)
	if _, err := s.file.ReadAt(buf, ref.offset); err != nil {
		return nil, fmt.Errorf("spool: segment %d: %w", ref.segment, err)
	}
	record := buf[headerBytes:]
	if crc32.Checksum(record, table) != binary.LittleEndian.Uint32(buf[4:]) {
		return nil, fmt.Errorf("spool: segment %d: the record at byte %d is damaged", ref.segment, ref.offset)
	}
	return record, nil
}

// Done marks a record as no longer needed. Open may still find it again if the process
// ends before the other records of its segment are done.
func (l *Log) Done(ref Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.segments[ref.segment]
	if s == nil {
		return
	}
	if s.pending--; s.pending > 0 {
		return
	}
	if s == l.current {
		l.current = nil
	}
	l.drop(s)
}

// Used returns the size of the records on disk in bytes.
func (l *Log) Used() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// Damaged returns the number of bytes that [Open] could not read.
func (l *Log) Damaged() int64 { return l.damaged }

// Close releases the directory. Records that are not done stay there.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var errs []error
	for _, s := range l.segments {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(append(errs, filelock.Release(l.lock))...)
}
