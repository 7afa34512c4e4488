package dataset

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPage bounds a page of a Parquet file when it is decompressed, in bytes. Writers make
// pages of about a megabyte; a page holds at least a value.
const maxPage = 4 * MaxLine

// checkPages refuses a file with a page that is larger than maxPage. The library decodes
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
		at += counted.n - int64(buffered.Buffered()) + int64(header.CompressedPageSize)
	}
	return nil
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
