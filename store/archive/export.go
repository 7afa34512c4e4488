package archive

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

// importScope is the prefix of the scope of the idempotency record by which an import recognises its own earlier run.
// Export leaves out such records.
const importScope = "import "

// Export writes a snapshot of everything except the event log to w. A rollout whose spans were evicted is exported
// without spans, even if more have arrived since.
func Export(ctx context.Context, d driver.Exporter, w io.Writer) (Counts, error) {
	stats, err := d.Statistics(ctx)
	if err != nil {
		return Counts{}, err
	}
	e := exporter{w: bufio.NewWriterSize(w, 1<<16), spans: spanchain.NewStream()}
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
		case r.Span != nil && evicted, r.Key != nil && strings.HasPrefix(r.Key.Scope, importScope), r.Document != nil && r.Document.Kind == driver.ClockNote().Kind:
			continue
		}
		if r.Document != nil && r.Document.Kind == driver.UnfinishedImport().Kind {
			return e.counts, agl.Errorf(agl.CodeIllegalState, "the database holds a part of an export: %s; complete the import first", r.Document.Body)
		}
		if err := e.record(&r); err != nil {
			return e.counts, err
		}
	}
	err = e.marshal(kindTrailer, &e.counts)
	if err == nil {
		err = e.w.Flush()
	}
	return e.counts, err
}

// exporter writes lines.
type exporter struct {
	w      *bufio.Writer
	counts Counts
	spans  *spanchain.Stream
	value  []byte // reused for each value
	text   []byte // reused for each line
}

func (e *exporter) header(driverName string) error {
	return e.marshal(kindHeader, &header{
		Format: formatName, Version: formatVersion, ExportID: "ex-" + randomid.Hex(8),
		Created: agl.TimestampOf(time.Now()), Driver: driverName,
	})
}

func (e *exporter) record(r *driver.Record) error {
	var kind string
	value := e.value[:0]
	switch {
	case r.Resources != nil:
		kind, value = kindResources, r.Resources.AppendJSON(value)
	case r.Worker != nil:
		kind, value = kindWorker, r.Worker.AppendJSON(value)
	case r.Rollout != nil:
		kind, value = kindRollout, appendRollout(value, r.Rollout)
	case r.Attempt != nil:
		kind, value = kindAttempt, r.Attempt.AppendJSON(value)
	case r.Span != nil:
		document, err := e.spans.Expand(r.Span)
		if err != nil {
			return err
		}
		kind, value = kindSpan, append(value, document...)
	case r.Sequence != nil:
		return e.marshal(kindSequence, (*sequenceValue)(r.Sequence))
	case r.Document != nil:
		kind, value = kindDocument, r.Document.AppendJSON(value)
	case r.Key != nil:
		k := r.Key
		return e.marshal(kindKey, &keyValue{k.Scope, k.Fingerprint, float64(k.CreateTime), k.Made, k.ResourcesID})
	case r.State != nil:
		return e.marshal(kindState, (*stateValue)(r.State))
	default:
		return agl.Errorf(agl.CodeInternal, "the driver exports an empty record")
	}
	e.value = value
	return e.line(kind, value)
}

func appendRollout(dst []byte, r *driver.RolloutRecord) []byte {
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

// marshal writes a line whose value is one of this package's types.
func (e *exporter) marshal(kind string, v any) error {
	value, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	return e.line(kind, value)
}

func (e *exporter) line(kind string, value []byte) error {
	e.text = append(append(append(e.text[:0], `{"kind":"`...), kind...), '"')
	if slices.Contains(value, '\n') || slices.Contains(value, '\r') {
		e.text = append(e.text, `,"base64":"`...)
		e.text = append(base64.StdEncoding.AppendEncode(e.text, value), '"')
	} else {
		e.text = append(append(e.text, `,"value":`...), value...)
	}
	e.text = appendChecksum(e.text, spandelta.Sum(e.text))
	e.counts.add(kind)
	n, err := e.w.Write(append(e.text, '\n'))
	e.counts.Bytes += int64(n)
	return err
}
