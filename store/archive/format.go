// Package archive moves a store's data between databases: [Export] writes a
// consistent snapshot as lines of JSON, [Import] reads it into an empty database
// of any driver.
//
//	counts, err := archive.Export(ctx, database, file)
//	counts, err = archive.Import(ctx, otherDriver, file, nil)
//
// The package must not know how a driver stores anything, nor any rule of a rollout's lifecycle.
package archive

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
)

// An export is one JSON object a line:
//
//	{"kind":"span","value":{…},"crc32c":"9a7c1f02"}
//
// The checksum covers the part of the line before it. A value is the wire form of its
// record, byte for byte as stored; a value that contains a line break is in a member
// "base64" instead. The first line is the header, the last one the trailer, which counts
// the records between them; those are in the order of [driver.Exporter.Export].
const (
	formatName    = "agl-export"
	formatVersion = 1
)

// The kinds of lines.
const (
	kindHeader    = "header"
	kindResources = "resources"
	kindWorker    = "worker"
	kindRollout   = "rollout"
	kindAttempt   = "attempt"
	kindSpan      = "span"
	kindSequence  = "sequence"
	kindDocument  = "document"
	kindKey       = "key"
	kindState     = "state"
	kindTrailer   = "trailer"
)

// header is the value of the first line.
type header struct {
	Format   string        `json:"format"`
	Version  int           `json:"version"`
	ExportID string        `json:"export_id"`
	Created  agl.Timestamp `json:"created"`
	Driver   string        `json:"driver"`
}

// Counts says how many records an export holds, or how many an import has read
// so far.
type Counts struct {
	Resources int   `json:"resources"`
	Workers   int   `json:"workers"`
	Rollouts  int   `json:"rollouts"`
	Attempts  int   `json:"attempts"`
	Spans     int   `json:"spans"`
	Sequences int   `json:"sequences"`
	Documents int   `json:"documents,omitzero"`
	Keys      int   `json:"keys"` // idempotency records
	Bytes     int64 `json:"-"`    // of the file
}

func (c *Counts) add(kind string) {
	switch kind {
	case kindResources:
		c.Resources++
	case kindWorker:
		c.Workers++
	case kindRollout:
		c.Rollouts++
	case kindAttempt:
		c.Attempts++
	case kindSpan:
		c.Spans++
	case kindSequence:
		c.Sequences++
	case kindDocument:
		c.Documents++
	case kindKey:
		c.Keys++
	}
}

// The values of lines that are not a type of package agl. A rollout is read through
// rolloutValue and written by appendRollout, which keeps its bytes.
type (
	rolloutValue struct {
		Place   agl.Null[int64] `json:"place"`
		Evicted bool            `json:"evicted"`
		Rollout agl.Rollout     `json:"rollout"`
	}
	sequenceValue struct {
		RolloutID string `json:"rollout_id"`
		Last      int64  `json:"last"`
	}
	keyValue struct {
		Scope       string              `json:"scope"`
		Fingerprint string              `json:"fingerprint"`
		CreateTime  float64             `json:"create_time"`
		Made        []driver.AttemptKey `json:"made"`
		ResourcesID string              `json:"resources_id"`
	}
	stateValue struct {
		QueueClosed     bool             `json:"queue_closed"`
		LatestResources agl.Null[string] `json:"latest_resources"`
	}
)

func appendChecksum(dst []byte, sum uint32) []byte {
	dst = append(dst, `,"crc32c":"`...)
	dst = hex.AppendEncode(dst, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return append(dst, '"', '}')
}

// line is one line of an export that is read.
type line struct {
	number int
	kind   string
	value  jsontext.Value // in its own memory
}

func (l *line) decode(v any) error {
	if err := rawjson.Unmarshal(l.value, v); err != nil {
		return l.damaged("its %s does not decode: %w", l.kind, err)
	}
	return nil
}

func (l *line) damaged(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "line %d of the export is damaged: %w", l.number, agl.Errorf(agl.CodeInvalid, format, args...))
}

// parse splits a line into its parts. The layout is fixed, so it decodes nothing.
func (l *line) parse(text []byte) error {
	const checksumBytes = len(`,"crc32c":"00000000"}`)
	at := len(text) - checksumBytes
	if at < 0 || !bytes.HasPrefix(text[at:], []byte(`,"crc32c":"`)) {
		return l.damaged("it does not end with a checksum")
	}
	if want := appendChecksum(nil, spandelta.Sum(text[:at])); !bytes.Equal(text[at:], want) {
		return l.damaged("its checksum does not match its content")
	}
	kind, found := bytes.CutPrefix(text[:at], []byte(`{"kind":"`))
	kind, rest, quoted := bytes.Cut(kind, []byte(`"`))
	if !found || !quoted {
		return l.damaged("it names no kind")
	}
	l.kind = string(kind)
	if value, plain := bytes.CutPrefix(rest, []byte(`,"value":`)); plain {
		l.value = value
		return nil
	}
	encoded, found := bytes.CutPrefix(rest, []byte(`,"base64":"`))
	encoded, ended := bytes.CutSuffix(encoded, []byte(`"`))
	if !found || !ended {
		return l.damaged("it has no value")
	}
	value, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err != nil {
		return l.damaged("its value is not base64: %w", err)
	}
	l.value = value
	return nil
}

// lineReader reads the lines of an export and verifies their checksums.
type lineReader struct {
	r      *bufio.Reader
	number int
	read   int64 // bytes
}

// maxLine bounds the memory for reading a file that is not an export.
const maxLine = 1 << 29

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 1<<16)}
}

// next returns the next line, io.EOF after the last one.
func (r *lineReader) next() (*line, error) {
	var text []byte
	for {
		part, err := r.r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(text) <= maxLine:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, agl.Errorf(agl.CodeInvalid, "line %d of the export has more than %d bytes: this is not an export", r.number+1, maxLine)
		case errors.Is(err, io.EOF) && len(text) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		r.number++
		r.read += int64(len(text))
		if r.number == 1 && bytes.HasPrefix(text, []byte("\x1f\x8b")) { // it may have no line end
			return nil, agl.Errorf(agl.CodeInvalid, "the export is compressed by gzip, must be JSON lines; decompress it first")
		}
		complete := err == nil
		l := &line{number: r.number}
		if parseErr := l.parse(bytes.TrimSuffix(text, []byte("\n"))); parseErr != nil {
			if !complete {
				return nil, errCutOff(r.number)
			}
			return nil, parseErr
		}
		return l, nil
	}
}

func errCutOff(line int) error {
	return agl.Errorf(agl.CodeInvalid, "the export ends at line %d, before its trailer: it was cut off", line)
}
