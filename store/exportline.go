package store

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"io"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

// exportLine is one line of an export.
type exportLine struct {
	number int
	kind   string
	value  jsontext.Value // the line's own memory
}

// decode reads the value.
func (l *exportLine) decode(v any) error {
	if err := rawjson.Unmarshal(l.value, v); err != nil {
		return l.damaged("its %s does not decode: %w", l.kind, err)
	}
	return nil
}

func (l *exportLine) damaged(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "line %d of the export is damaged: %w", l.number, agl.Errorf(agl.CodeInvalid, format, args...))
}

// lineReader reads the lines of an export and checks them one by one.
type lineReader struct {
	r      *bufio.Reader
	sums   *crc32.Table
	number int
	read   int64 // bytes
}

// maxLine bounds the memory that a file which is no export can take.
const maxLine = 1 << 29

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 1<<16), sums: castagnoli()}
}

// next returns the next line, io.EOF behind the last one.
func (r *lineReader) next() (*exportLine, error) {
	var text []byte
	for {
		part, err := r.r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(text) <= maxLine:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, agl.Errorf(agl.CodeInvalid, "line %d of the export has more than %d bytes: this is no export", r.number+1, maxLine)
		case errors.Is(err, io.EOF) && len(text) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		r.number++
		r.read += int64(len(text))
		whole := err == nil
		line := &exportLine{number: r.number}
		if parseErr := line.parse(bytes.TrimSuffix(text, []byte("\n")), r.sums); parseErr != nil {
			if !whole {
				return nil, errCut(r.number)
			}
			return nil, parseErr
		}
		return line, nil
	}
}

func errCut(line int) error {
	return agl.Errorf(agl.CodeInvalid, "the export ends at line %d, before its trailer: it was cut off", line)
}

// parse takes a line apart. Its layout is fixed, so nothing is decoded.
func (l *exportLine) parse(text []byte, sums *crc32.Table) error {
	const sumBytes = len(`,"crc32c":"00000000"}`)
	at := len(text) - sumBytes
	if at < 0 || !bytes.HasPrefix(text[at:], []byte(`,"crc32c":"`)) {
		return l.damaged("it does not end with a checksum")
	}
	if want := appendSum(nil, crc32.Checksum(text[:at], sums)); !bytes.Equal(text[at:], want) {
		return l.damaged("its checksum is not that of its content")
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
		return l.damaged("its value is not in base64: %w", err)
	}
	l.value = value
	return nil
}
