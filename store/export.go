package store

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// An export is lines of JSON, one record each:
//
//	{"kind":"span","value":{…},"crc32c":"9a7c1f02"}
//
// The checksum is that of the line before it. A value is in the noun's wire
// form, byte for byte as it is stored; one that has line breaks between its
// tokens is a member "base64" instead. The first line is the header, the last
// one the trailer, which counts the records between them; those come in the
// order of [Driver.Export].
const (
	exportFormat  = "agl-export"
	exportVersion = 1
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
	kindKey       = "key"
	kindState     = "state"
	kindTrailer   = "trailer"
)

// exportHeader is the value of the first line.
type exportHeader struct {
	Format   string        `json:"format"`
	Version  int           `json:"version"`
	ExportID string        `json:"export_id"`
	Created  agl.Timestamp `json:"created"`
	Driver   string        `json:"driver"`
}

// Counts says how much an export holds, or an import has read so far.
type Counts struct {
	Resources int   `json:"resources"`
	Workers   int   `json:"workers"`
	Rollouts  int   `json:"rollouts"`
	Attempts  int   `json:"attempts"`
	Spans     int   `json:"spans"`
	Sequences int   `json:"sequences"`
	Keys      int   `json:"keys"` // idempotency records
	Bytes     int64 `json:"-"`    // of the file
}

// add counts a record; of the kinds of which there is one, none is counted.
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
	case kindKey:
		c.Keys++
	}
}

// records is c without what depends on how it is written.
func (c Counts) records() Counts {
	c.Bytes = 0
	return c
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

const exportIDBytes = 8

// importScope begins the scope of the idempotency record by which an import
// knows itself; it is no part of an export.
const importScope = "import "

// Export writes everything that there is, but the event log, as it is
// at one moment. Spans that were evicted are not there, nor those that came for
// their rollouts since.
func Export(ctx context.Context, d Exporter, w io.Writer) (Counts, error) {
	stats, err := d.Statistics(ctx)
	if err != nil {
		return Counts{}, err
	}
	e := exporter{w: bufio.NewWriterSize(w, 1<<16), sums: castagnoli()}
	if err := e.header(stats.Name); err != nil {
		return e.counts, err
	}
	evicted := false
	for r, err := range d.Export(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return e.counts, err
		}
		switch {
		case r.Rollout != nil:
			evicted = r.Rollout.Evicted
		case r.Span != nil && evicted, r.Key != nil && strings.HasPrefix(r.Key.Scope, importScope):
			continue
		}
		if err := e.record(&r); err != nil {
			return e.counts, err
		}
	}
	err = e.line(kindTrailer, e.counts.appendJSON(e.value[:0]))
	if err == nil {
		err = e.w.Flush()
	}
	return e.counts, err
}

// exporter writes lines.
type exporter struct {
	w      *bufio.Writer
	sums   *crc32.Table
	counts Counts
	value  []byte // memory for a value
	text   []byte // and for a line
}

func (e *exporter) header(driver string) error {
	e.value = append(e.value[:0], `{"format":"`+exportFormat+`","version":`...)
	e.value = strconv.AppendInt(e.value, exportVersion, 10)
	e.value = append(e.value, `,"export_id":"`+newID("ex-", exportIDBytes)+`","created":`...)
	e.value = strconv.AppendFloat(e.value, float64(agl.TimestampOf(time.Now())), 'f', -1, 64)
	e.value = append(e.value, `,"driver":`...)
	e.value = append(rawjson.AppendString(e.value, driver), '}')
	return e.line(kindHeader, e.value)
}

func (e *exporter) record(r *Record) error {
	var kind string
	value := e.value[:0]
	switch {
	case r.Resources != nil:
		kind, value = kindResources, r.Resources.AppendJSON(value)
	case r.Worker != nil:
		kind, value = kindWorker, r.Worker.AppendJSON(value)
	case r.Rollout != nil:
		kind, value = kindRollout, r.Rollout.appendJSON(value)
	case r.Attempt != nil:
		kind, value = kindAttempt, r.Attempt.AppendJSON(value)
	case r.Span != nil:
		kind, value = kindSpan, append(value, r.Span.Payload...)
	case r.Sequence != nil:
		kind, value = kindSequence, r.Sequence.appendJSON(value)
	case r.Key != nil:
		kind, value = kindKey, r.Key.appendJSON(value)
	case r.State != nil:
		kind, value = kindState, r.State.appendJSON(value)
	default:
		return agl.Errorf(agl.CodeInternal, "the driver exports an empty record")
	}
	e.value = value
	return e.line(kind, value)
}

// line writes one line. The member before the checksum is what it covers.
func (e *exporter) line(kind string, value []byte) error {
	e.text = append(append(append(e.text[:0], `{"kind":"`...), kind...), '"')
	if slices.Contains(value, '\n') || slices.Contains(value, '\r') {
		e.text = append(e.text, `,"base64":"`...)
		e.text = append(base64.StdEncoding.AppendEncode(e.text, value), '"')
	} else {
		e.text = append(append(e.text, `,"value":`...), value...)
	}
	e.text = appendSum(e.text, crc32.Checksum(e.text, e.sums))
	e.counts.add(kind)
	n, err := e.w.Write(append(e.text, '\n'))
	e.counts.Bytes += int64(n)
	return err
}

func appendSum(dst []byte, sum uint32) []byte {
	dst = append(dst, `,"crc32c":"`...)
	dst = hex.AppendEncode(dst, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return append(dst, '"', '}')
}

func (r *RolloutRecord) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"place":`...)
	if r.Place.Valid {
		dst = strconv.AppendInt(dst, r.Place.V, 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = strconv.AppendBool(append(dst, `,"evicted":`...), r.Evicted)
	dst = append(dst, `,"rollout":`...)
	return append(r.Rollout.AppendJSON(dst), '}')
}

func (s *Sequence) appendJSON(dst []byte) []byte {
	dst = rawjson.AppendString(append(dst, `{"rollout_id":`...), s.RolloutID)
	dst = strconv.AppendInt(append(dst, `,"last":`...), s.Last, 10)
	return append(dst, '}')
}

func (r *IdempotencyRecord) appendJSON(dst []byte) []byte {
	dst = rawjson.AppendString(append(dst, `{"scope":`...), r.Scope)
	dst = rawjson.AppendString(append(dst, `,"fingerprint":`...), r.Fingerprint)
	dst = strconv.AppendFloat(append(dst, `,"create_time":`...), float64(r.CreateTime), 'g', -1, 64)
	dst = append(dst, `,"made":[`...)
	for i, made := range r.Made {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(append(dst, `{"rollout_id":`...), made.RolloutID)
		dst = rawjson.AppendString(append(dst, `,"attempt_id":`...), made.AttemptID)
		dst = append(dst, '}')
	}
	dst = rawjson.AppendString(append(dst, `],"resources_id":`...), r.ResourcesID)
	return append(dst, '}')
}

func (s *State) appendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Bool("queue_closed", s.QueueClosed)
	o.NullString("latest_resources", s.LatestResources.V, s.LatestResources.Valid)
	return o.End()
}

func (c *Counts) appendJSON(dst []byte) []byte {
	for i, f := range [...]struct {
		name string
		n    int
	}{
		{"resources", c.Resources},
		{"workers", c.Workers},
		{"rollouts", c.Rollouts},
		{"attempts", c.Attempts},
		{"spans", c.Spans},
		{"sequences", c.Sequences},
		{"keys", c.Keys},
	} {
		dst = append(dst, "{,"[min(i, 1)], '"')
		dst = append(append(dst, f.name...), '"', ':')
		dst = strconv.AppendInt(dst, int64(f.n), 10)
	}
	return append(dst, '}')
}
