package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// maxPage bounds a decompressed page of a Parquet file, in bytes. Writers make pages of about a megabyte; a page
// holds at least one value.
const maxPage = 4 * MaxLine

// maxGroup bounds the sum of the largest pages of all columns of a row group, which are decoded at the same time.
const maxGroup = 8 * maxPage

// checkPages rejects a file with a page that is larger than maxPage or than its header says, compressed or decoded.
// The library decodes whole pages, so without this check a few kilobytes could take all memory. It returns the number
// of values in the longest row.
func checkPages(file *parquet.File, r io.ReaderAt) (longestRow int64, err error) {
	leaves := leavesOf(file.Root(), nil)
	checker := pageChecker{r: r}
	for g, group := range file.Metadata().RowGroups {
		if group.NumRows == 0 {
			continue // pyarrow gives it no data page; rows does not read it either
		}
		size, row := int64(0), int64(0)
		for i := range group.Columns {
			chunk := &group.Columns[i].MetaData
			if i >= len(leaves) {
				return 0, fmt.Errorf("row group %d has %d columns, the schema has %d", g, len(group.Columns), len(leaves))
			}
			c := column{kind: chunk.Type, repetition: leaves[i].MaxRepetitionLevel(), definition: leaves[i].MaxDefinitionLevel()}
			if err := checker.check(chunk, &c); err != nil {
				return 0, fmt.Errorf("row group %d, column %d: %w", g, i, err)
			}
			size += c.dictionary + c.page
			row += c.longestRow
		}
		if size > maxGroup {
			return 0, fmt.Errorf("row group %d: the pages of its columns have %d bytes, more than %d", g, size, maxGroup)
		}
		if row > maxRowValues {
			return 0, fmt.Errorf("row group %d: a row has %d values, more than %d", g, row, maxRowValues)
		}
		longestRow = max(longestRow, row)
	}
	return longestRow, nil
}

// leavesOf appends the columns that have values, in the order of their chunks.
func leavesOf(c *parquet.Column, leaves []*parquet.Column) []*parquet.Column {
	if c.Leaf() {
		return append(leaves, c)
	}
	for _, child := range c.Columns() {
		leaves = leavesOf(child, leaves)
	}
	return leaves
}

// pageChecker reads pages into one buffer.
type pageChecker struct {
	r    io.ReaderAt
	page bytes.Buffer
}

// check adds the pages of a chunk to its column.
func (p *pageChecker) check(chunk *format.ColumnMetaData, c *column) error {
	at := chunk.DataPageOffset
	if first := chunk.DictionaryPageOffset; first > 0 && first < at {
		at = first
	}
	end := at + chunk.TotalCompressedSize
	protocol := new(thrift.CompactProtocol)
	for at < end {
		counted := &countingReader{r: io.NewSectionReader(p.r, at, end-at)}
		buffered := bufio.NewReader(counted)
		var header format.PageHeader
		if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&header); err != nil {
			return fmt.Errorf("page header: %w", err)
		}
		if header.UncompressedPageSize > maxPage || header.CompressedPageSize > maxPage {
			return fmt.Errorf("a page has %d bytes, more than %d", max(header.UncompressedPageSize, header.CompressedPageSize), maxPage)
		}
		if header.CompressedPageSize < 0 || header.UncompressedPageSize < 0 {
			return errors.New("a page has a negative size")
		}
		at += counted.n - int64(buffered.Buffered())
		if err := p.inflate(chunk.Codec, &header, io.NewSectionReader(p.r, at, int64(header.CompressedPageSize))); err != nil {
			return err
		}
		if err := c.addPage(&header, p.page.Bytes()); err != nil {
			return err
		}
		at += int64(header.CompressedPageSize)
	}
	return nil
}

// inflate decompresses a page into the buffer, and rejects one that is larger than its header says; the library would
// decode it all the same.
func (p *pageChecker) inflate(codec format.CompressionCodec, header *format.PageHeader, page io.Reader) error {
	p.page.Reset()
	most := int64(header.UncompressedPageSize)
	if v2 := header.DataPageHeaderV2; v2.Valid {
		levels := int64(v2.V.RepetitionLevelsByteLength) + int64(v2.V.DefinitionLevelsByteLength)
		if v2.V.RepetitionLevelsByteLength < 0 || v2.V.DefinitionLevelsByteLength < 0 || levels > most {
			return errors.New("a page has levels of a wrong size")
		}
		if compressed := v2.V.IsCompressed; compressed.Valid && !compressed.V {
			codec = format.Uncompressed
		}
		if _, err := io.CopyN(&p.page, page, levels); err != nil { // not compressed
			return fmt.Errorf("levels of a page: %w", err)
		}
		most -= levels
	}
	size, err := inflate(&p.page, codec, page, most)
	if err != nil {
		return fmt.Errorf("a page cannot be decompressed: %w", err)
	}
	if size > most {
		return fmt.Errorf("a page has more bytes than its header says, %d", most)
	}
	return nil
}

// inflate appends a decompressed page to the buffer and returns its size. A page of more than most bytes returns a
// size above most.
func inflate(to *bytes.Buffer, codec format.CompressionCodec, page io.Reader, most int64) (size int64, err error) {
	var stream io.Reader
	switch codec {
	case format.Gzip:
		if stream, err = gzip.NewReader(page); err != nil {
			return 0, err
		}
	case format.Brotli:
		stream = brotli.NewReader(page)
	case format.Zstd:
		decoder, err := zstd.NewReader(page, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxPage))
		if err != nil {
			return 0, err
		}
		defer decoder.Close()
		stream = decoder
	case format.Snappy, format.Lz4Raw: // blocks, which are small
		block, err := io.ReadAll(page)
		if err != nil {
			return 0, err
		}
		if codec == format.Snappy {
			if n, err := snappy.DecodedLen(block); err != nil || int64(n) > most {
				return int64(n), err
			}
		}
		to.Grow(int(most))
		out := to.AvailableBuffer()[:most]
		// A block that does not fit is an error. So is a damaged one, which the library would retry for ever.
		var n int
		if codec == format.Snappy {
			out, err = snappy.Decode(out, block)
			n = len(out)
		} else {
			n, err = lz4.UncompressBlock(block, out)
		}
		if err != nil {
			return 0, err
		}
		to.Write(out[:n])
		return int64(n), nil
	case format.Uncompressed:
		stream = page
	default:
		return 0, fmt.Errorf("the compression %s is unknown", codec)
	}
	return to.ReadFrom(io.LimitReader(stream, most+1))
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
