package dataset

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

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

// openPlain checks all pages of a file and returns the same file without compression: its pages are decompressed as
// they are read. It rejects a page that is larger than maxPage or than its header says, compressed or decoded: the
// library decodes whole pages, so without this check a few kilobytes could take all memory. And of LZ4 pages that are
// hardly smaller than what is in them, the library (0.32.0) gives what was in its memory before; its booleans in runs
// are wrong unless it wrote them itself. longestRow is the number of values in the longest row.
func openPlain(r io.ReaderAt, size int64) (file *parquet.File, longestRow int64, err error) {
	packed, err := openFile(r, size)
	if err != nil {
		return nil, 0, err
	}
	metadata := packed.Metadata()
	leaves := leavesOf(packed.Root(), nil)
	plain := &plainFile{size: int64(len(magic))}
	// pyarrow gives a row group without rows no data page.
	metadata.RowGroups = slices.DeleteFunc(metadata.RowGroups, func(g format.RowGroup) bool { return g.NumRows == 0 })
	for g := range metadata.RowGroups {
		group := &metadata.RowGroups[g]
		size, row := int64(0), int64(0)
		for i := range group.Columns {
			if i >= len(leaves) {
				return nil, 0, fmt.Errorf("row group %d has %d columns, the schema has %d", g, len(group.Columns), len(leaves))
			}
			chunk := &group.Columns[i].MetaData
			c := column{kind: chunk.Type, repetition: leaves[i].MaxRepetitionLevel(), definition: leaves[i].MaxDefinitionLevel()}
			if err := plain.add(r, chunk, &c); err != nil {
				return nil, 0, fmt.Errorf("row group %d, column %d: %w", g, i, err)
			}
			size += c.dictionary + c.page
			row += c.longestRow
		}
		if size > maxGroup {
			return nil, 0, fmt.Errorf("row group %d: the pages of its columns have %d bytes, more than %d", g, size, maxGroup)
		}
		if row > maxRowValues {
			return nil, 0, fmt.Errorf("row group %d: a row has %d values, more than %d", g, row, maxRowValues)
		}
		longestRow = max(longestRow, row)
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), metadata)
	if err != nil {
		return nil, 0, err
	}
	plain.footer = append(binary.LittleEndian.AppendUint32(footer, uint32(len(footer))), magic...)
	file, err = openFile(plain, plain.size+int64(len(plain.footer)))
	return file, longestRow, err
}

func openFile(r io.ReaderAt, size int64) (*parquet.File, error) {
	return parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
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

const magic = "PAR1"

// plainFile is a Parquet file whose pages are not compressed.
type plainFile struct {
	chunks []*plainChunk
	size   int64 // of all before the footer
	footer []byte
}

// plainChunk reads the pages of a column chunk from the file that has them. The library reads them in order.
type plainChunk struct {
	r       io.ReaderAt
	levels  column // of which only the kind and the levels are used
	codec   format.CompressionCodec
	first   int64 // the offset of the first page in r
	end     int64
	at      int64 // the offset in the plain file
	length  int64
	next    int64 // the offset of the next page in r
	page    []byte
	pageAt  int64 // the offset of page in the plain file
	scratch bytes.Buffer
}

// add adds a chunk after the last one, and its pages to its column.
func (f *plainFile) add(r io.ReaderAt, chunk *format.ColumnMetaData, c *column) error {
	first := chunk.DataPageOffset
	if dictionary := chunk.DictionaryPageOffset; dictionary > 0 && dictionary < first {
		first = dictionary
	}
	p := &plainChunk{r: r, levels: *c, codec: chunk.Codec, first: first, end: first + chunk.TotalCompressedSize, at: f.size}
	chunk.Codec, chunk.DictionaryPageOffset, chunk.DataPageOffset = format.Uncompressed, 0, 0
	for p.reset(); p.next < p.end; {
		header, page, err := p.read()
		if err != nil {
			return err
		}
		switch {
		case header.Type == format.DictionaryPage && chunk.DataPageOffset == 0:
			chunk.DictionaryPageOffset = p.pageAt
		case chunk.DataPageOffset == 0:
			chunk.DataPageOffset = p.pageAt
		}
		if err := c.addPage(header, page); err != nil {
			return err
		}
	}
	p.length = p.pageAt + int64(len(p.page)) - p.at
	p.page = nil
	chunk.TotalCompressedSize, chunk.TotalUncompressedSize = p.length, p.length
	f.chunks = append(f.chunks, p)
	f.size += p.length
	return nil
}

// ReadAt implements [io.ReaderAt]. Only one goroutine may use it at a time.
func (f *plainFile) ReadAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		var part []byte
		switch off := at + int64(n); {
		case off < int64(len(magic)):
			part = []byte(magic)[off:]
		case off >= f.size+int64(len(f.footer)):
			return n, io.EOF
		case off >= f.size:
			part = f.footer[off-f.size:]
		default:
			i, found := slices.BinarySearchFunc(f.chunks, off, func(c *plainChunk, off int64) int { return cmp.Compare(c.at, off) })
			if !found {
				i--
			}
			for ; off >= f.chunks[i].at+f.chunks[i].length; i++ { // of no page
			}
			if part, err = f.chunks[i].from(off); err != nil {
				return n, err
			}
		}
		n += copy(p[n:], part)
	}
	return n, nil
}

// from returns the bytes at an offset of the plain file that are in one page.
func (p *plainChunk) from(off int64) ([]byte, error) {
	if off < p.pageAt || p.page == nil {
		p.reset()
	}
	for off >= p.pageAt+int64(len(p.page)) {
		if _, _, err := p.read(); err != nil {
			return nil, err
		}
	}
	return p.page[off-p.pageAt:], nil
}

func (p *plainChunk) reset() { p.next, p.page, p.pageAt = p.first, nil, p.at }

// read reads the next page, and returns its header and what is behind it. The plain file leaves out a page without values.
func (p *plainChunk) read() (*format.PageHeader, []byte, error) {
	rest := &io.LimitedReader{R: io.NewSectionReader(p.r, p.next, p.end-p.next), N: p.end - p.next}
	buffered := bufio.NewReader(rest)
	header := new(format.PageHeader)
	protocol := new(thrift.CompactProtocol)
	if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(header); err != nil {
		return nil, nil, fmt.Errorf("page header: %w", err)
	}
	if header.UncompressedPageSize > maxPage || header.CompressedPageSize > maxPage {
		return nil, nil, fmt.Errorf("a page has %d bytes, more than %d", max(header.UncompressedPageSize, header.CompressedPageSize), maxPage)
	}
	if header.CompressedPageSize < 0 || header.UncompressedPageSize < 0 {
		return nil, nil, errors.New("a page has a negative size")
	}
	at := p.end - rest.N - int64(buffered.Buffered())
	p.next = at + int64(header.CompressedPageSize)
	if header.CRC != 0 {
		sum := crc32.NewIEEE()
		if _, err := io.Copy(sum, io.NewSectionReader(p.r, at, int64(header.CompressedPageSize))); err != nil {
			return nil, nil, err
		}
		if sum.Sum32() != uint32(header.CRC) {
			return nil, nil, errors.New("the checksum of a page is wrong")
		}
	}
	if err := p.inflate(header, io.NewSectionReader(p.r, at, int64(header.CompressedPageSize))); err != nil {
		return nil, nil, err
	}
	page, err := p.levels.plainBooleans(header, p.scratch.Bytes())
	if err != nil {
		return nil, nil, err
	}
	header.CRC, header.CompressedPageSize, header.UncompressedPageSize = 0, int32(len(page)), int32(len(page))
	head, err := thrift.Marshal(protocol, header)
	if err != nil {
		return nil, nil, err
	}
	p.pageAt += int64(len(p.page))
	p.page = p.page[:0]
	if isEmpty(header) {
		return header, page, nil
	}
	p.page = append(append(p.page, head...), page...)
	return header, p.page[len(head):], nil
}

// isEmpty reports whether a data page has no values, not even nulls, as pyarrow writes them. The plain file is without them: the library
// panics on those of the second version in nested columns.
func isEmpty(header *format.PageHeader) bool {
	v1, v2 := header.DataPageHeader, header.DataPageHeaderV2
	return v1.Valid && v1.V.NumValues == 0 || v2.Valid && v2.V.NumValues == 0
}

// inflate decompresses a page into the buffer, and rejects one that is larger than its header says.
func (p *plainChunk) inflate(header *format.PageHeader, page io.Reader) error {
	codec := p.codec
	p.scratch.Reset()
	most := int64(header.UncompressedPageSize)
	if v2 := header.DataPageHeaderV2; v2.Valid {
		levels := int64(v2.V.RepetitionLevelsByteLength) + int64(v2.V.DefinitionLevelsByteLength)
		if v2.V.RepetitionLevelsByteLength < 0 || v2.V.DefinitionLevelsByteLength < 0 || levels > most {
			return errors.New("a page has levels of a wrong size")
		}
		if compressed := v2.V.IsCompressed; compressed.Valid && !compressed.V {
			codec = format.Uncompressed
		}
		if _, err := io.CopyN(&p.scratch, page, levels); err != nil { // not compressed
			return fmt.Errorf("levels of a page: %w", err)
		}
		most -= levels
	}
	size, err := inflate(&p.scratch, codec, page, most)
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
		// A block that does not fit is an error.
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
