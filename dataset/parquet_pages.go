package dataset

import (
	"bufio"
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

// maxPage bounds a page of a Parquet file when it is decompressed, in bytes. Writers make
// pages of about a megabyte; a page holds at least a value.
const maxPage = 4 * MaxLine

// checkPages refuses a file with a page that is larger than maxPage, or than it says. The library decodes
// pages whole, so a few kilobytes could take all memory.
func checkPages(file *parquet.File, r io.ReaderAt) error {
	for g, group := range file.Metadata().RowGroups {
		for c := range group.Columns {
			if err := checkChunk(&group.Columns[c].MetaData, r); err != nil {
				return fmt.Errorf("row group %d, column %d: %w", g, c, err)
			}
		}
	}
	return nil
}

// checkChunk reads the headers of a chunk's pages, and what they say of compressed sizes.
func checkChunk(chunk *format.ColumnMetaData, r io.ReaderAt) error {
	at := chunk.DataPageOffset
	if first := chunk.DictionaryPageOffset; first > 0 && first < at {
		at = first
	}
	end := at + chunk.TotalCompressedSize
	protocol := new(thrift.CompactProtocol)
	for at < end {
		counted := &countingReader{r: io.NewSectionReader(r, at, end-at)}
		buffered := bufio.NewReader(counted)
		var header format.PageHeader
		if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&header); err != nil {
			return fmt.Errorf("page header: %w", err)
		}
		if header.UncompressedPageSize > maxPage || header.CompressedPageSize > maxPage {
			return fmt.Errorf("a page has %d bytes, more than %d", max(header.UncompressedPageSize, header.CompressedPageSize), maxPage)
		}
		if header.CompressedPageSize < 0 {
			return errors.New("a page has a negative size")
		}
		at += counted.n - int64(buffered.Buffered())
		if err := checkPage(chunk.Codec, &header, io.NewSectionReader(r, at, int64(header.CompressedPageSize))); err != nil {
			return err
		}
		at += int64(header.CompressedPageSize)
	}
	return nil
}

// checkPage decompresses a page, to refuse one that is larger than its header says: the library
// goes by what comes, whatever that is.
func checkPage(codec format.CompressionCodec, header *format.PageHeader, page io.Reader) error {
	most := int64(header.UncompressedPageSize)
	if v2 := header.DataPageHeaderV2; v2.Valid {
		levels := int64(v2.V.RepetitionLevelsByteLength) + int64(v2.V.DefinitionLevelsByteLength)
		if levels < 0 || levels > most {
			return errors.New("a page has levels of a wrong size")
		}
		if compressed := v2.V.IsCompressed; compressed.Valid && !compressed.V {
			return nil
		}
		if _, err := io.CopyN(io.Discard, page, levels); err != nil { // not compressed
			return fmt.Errorf("levels of a page: %w", err)
		}
		most -= levels
	}
	size, err := inflatedSize(codec, page, most)
	if err != nil {
		return fmt.Errorf("a page cannot be decompressed: %w", err)
	}
	if size > most {
		return fmt.Errorf("a page has more bytes than its header says, %d", most)
	}
	return nil
}

// inflatedSize returns how many bytes a page has, or more than most if it has more.
func inflatedSize(codec format.CompressionCodec, page io.Reader, most int64) (size int64, err error) {
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
			n, err := snappy.DecodedLen(block)
			return int64(n), err
		}
		// A block that does not fit is an error, and so is a damaged one, which the library would try for ever.
		n, err := lz4.UncompressBlock(block, make([]byte, most))
		return int64(n), err
	default:
		return 0, nil // not compressed, or unknown to the library
	}
	return io.Copy(io.Discard, io.LimitReader(stream, most+1))
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
