package tracker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
)

// TensorBoard writes an event file: TFRecords of tensorflow.Event messages (tensorflow/core/util/event.proto, and
// tensorflow/core/lib/io/record_writer.h for the framing).
type TensorBoard struct {
	file    *os.File
	started bool
}

// The fields of tensorflow.Event, Summary, Summary.Value and SessionLog.
const (
	eventWallTime    = 1
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5
	eventSessionLog  = 7

	summaryValue = 1
	valueTag     = 1
	valueSimple  = 2

	sessionStatus = 1
	sessionStart  = 1
)

// NewTensorBoard makes an event file in a folder, which it creates. When a run resumes, TensorBoard drops what earlier files in the
// folder have for the step of the first line, or the first logged one, and later ones.
func NewTensorBoard(folder string) (*TensorBoard, error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), now.Nanosecond())
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	t := &TensorBoard{file: file}
	version := protowire.AppendTag(nil, eventFileVersion, protowire.BytesType)
	version = protowire.AppendString(version, "brain.Event:2")
	if err := t.write(0, version); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

// start says from which step on this file replaces earlier ones.
func (t *TensorBoard) start(step int) error {
	start := protowire.AppendTag(nil, sessionStatus, protowire.VarintType)
	start = protowire.AppendVarint(start, sessionStart)
	session := protowire.AppendTag(nil, eventSessionLog, protowire.BytesType)
	if err := t.write(step, protowire.AppendBytes(session, start)); err != nil {
		return err
	}
	t.started = true
	return nil
}

// Log implements [Tracker].
func (t *TensorBoard) Log(_ context.Context, line []agl.RunMetrics) error {
	if !t.started {
		if err := t.start(line[len(line)-1].Step); err != nil { // of an earlier step, all but these metrics stands in an earlier file
			return err
		}
	}
	for _, one := range line {
		if err := t.log(one); err != nil {
			return err
		}
	}
	return nil
}

func (t *TensorBoard) log(one agl.RunMetrics) error {
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(one.Values)) {
		value := protowire.AppendTag(nil, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, name)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(one.Values[name])))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	event := protowire.AppendTag(nil, eventSummary, protowire.BytesType)
	return t.write(one.Step, protowire.AppendBytes(event, summary))
}

// Close implements [Tracker].
func (t *TensorBoard) Close(context.Context, error) error {
	return errors.Join(t.file.Sync(), t.file.Close())
}

// write appends an event with the given content.
func (t *TensorBoard) write(step int, content []byte) error {
	event := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	event = protowire.AppendFixed64(event, math.Float64bits(float64(time.Now().UnixNano())/1e9))
	event = protowire.AppendTag(event, eventStep, protowire.VarintType)
	event = protowire.AppendVarint(event, uint64(step))
	event = append(event, content...)

	record := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	record = binary.LittleEndian.AppendUint32(record, masked(record))
	record = append(record, event...)
	record = binary.LittleEndian.AppendUint32(record, masked(event))
	if _, err := t.file.Write(record); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

// masked is the checksum of a TFRecord: CRC-32C, rotated and offset.
func masked(data []byte) uint32 {
	const offset = 0xa282ead8
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + offset
}
