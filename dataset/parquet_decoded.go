package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxValues bounds the values of a page: a run of any length takes a few bytes.
	maxValues = maxPage / 8
	// maxRowValues bounds the values of a row, over all columns. Each takes at least two bytes of the row's text.
	maxRowValues = MaxLine / 4
)

var errPageCut = errors.New("a page ends too early")

// column adds up how much memory the decoded values of a column take.
type column struct {
	kind                   format.Type
	repetition, definition int // the largest levels

	dictionary, page int64 // bytes of the dictionary and of the largest page
	row, longestRow  int64 // values in the last row of the pages so far, and in the longest row
}

// addPage adds a decompressed page, or returns why it must not be decoded. Uncompressed levels come before the rest.
func (c *column) addPage(header *format.PageHeader, page []byte) error {
	switch {
	case header.DictionaryPageHeader.Valid:
		n := int64(header.DictionaryPageHeader.V.NumValues)
		size, err := c.valuesSize(format.Plain, n, page)
		c.dictionary = size
		return err
	case header.DataPageHeader.Valid:
		return c.addData(int64(header.DataPageHeader.V.NumValues), header.DataPageHeader.V.Encoding, page, [2]int{-1, -1})
	case header.DataPageHeaderV2.Valid:
		v2 := &header.DataPageHeaderV2.V
		return c.addData(int64(v2.NumValues), v2.Encoding, page, lengthsOf(v2))
	}
	return nil // an index, which is not read
}

// addData adds a page of n values. lengths are those of its two kinds of levels, -1 if the page itself contains the
// length.
func (c *column) addData(n int64, encoding format.Encoding, page []byte, lengths [2]int) error {
	if n < 0 || n > maxValues {
		return fmt.Errorf("a page has %d values, more than %d", n, maxValues)
	}
	levels, values, err := c.split(page, lengths)
	if err != nil {
		return err
	}
	size := int64(0)
	for i, most := range c.most() {
		if most == 0 {
			continue
		}
		visit := func(int64, uint64) {}
		if i == 0 {
			visit = c.addLevels(n)
		}
		if _, err := runs(levels[i], bits.Len(uint(most)), visit); err != nil {
			return err
		}
		size += n
	}
	if c.repetition == 0 {
		c.longestRow = 1
	}
	valuesSize, err := c.valuesSize(encoding, n, values)
	c.page = max(c.page, size+valuesSize)
	return err
}

// most returns the largest levels of both kinds.
func (c *column) most() [2]int { return [...]int{c.repetition, c.definition} }

// split returns the two kinds of levels of a data page, and the values behind them.
func (c *column) split(page []byte, lengths [2]int) (levels [2][]byte, values []byte, err error) {
	for i, most := range c.most() {
		length := lengths[i]
		if length < 0 && most == 0 {
			continue
		}
		if length < 0 {
			const prefix = 4
			if len(page) < prefix {
				return levels, nil, errPageCut
			}
			length = int(binary.LittleEndian.Uint32(page))
			page = page[prefix:]
		}
		if length > len(page) {
			return levels, nil, errPageCut
		}
		levels[i], page = page[:length], page[length:]
	}
	return levels, page, nil
}

// plainBooleans returns a page of booleans without runs, and other pages as they are.
func (c *column) plainBooleans(header *format.PageHeader, page []byte) ([]byte, error) {
	encoding, lengths := (*format.Encoding)(nil), [2]int{-1, -1}
	switch {
	case header.DataPageHeader.Valid:
		encoding = &header.DataPageHeader.V.Encoding
	case header.DataPageHeaderV2.Valid:
		v2 := &header.DataPageHeaderV2.V
		encoding, lengths = &v2.Encoding, lengthsOf(v2)
	}
	if c.kind != format.Boolean || encoding == nil || *encoding != format.RLE {
		return page, nil
	}
	_, values, err := c.split(page, lengths)
	if err != nil {
		return nil, err
	}
	const prefix = 4
	if len(values) < prefix {
		return nil, errPageCut
	}
	plain, at := slices.Clone(page[:len(page)-len(values)]), 0
	if _, err := runs(values[prefix:], 1, func(count int64, value uint64) {
		for range count {
			if at%8 == 0 {
				plain = append(plain, 0)
			}
			plain[len(plain)-1] |= byte(value << (at % 8))
			at++
		}
	}); err != nil {
		return nil, err
	}
	*encoding = format.Plain
	return plain, nil
}

func lengthsOf(v2 *format.DataPageHeaderV2) [2]int {
	return [...]int{int(v2.RepetitionLevelsByteLength), int(v2.DefinitionLevelsByteLength)}
}

// addLevels returns a function that counts the values of rows from the first n repetition levels.
func (c *column) addLevels(n int64) func(count int64, level uint64) {
	left := n
	return func(count int64, level uint64) {
		count = min(count, left)
		left -= count
		switch {
		case count == 0:
			return
		case level == 0:
			c.row = 1
		default:
			c.row += count
		}
		c.longestRow = max(c.longestRow, c.row)
	}
}

// valuesSize returns how many bytes the values of a page take when they are decoded.
func (c *column) valuesSize(encoding format.Encoding, n int64, data []byte) (size int64, err error) {
	if n < 0 || n > maxValues {
		return 0, fmt.Errorf("a page has %d values, more than %d", n, maxValues)
	}
	const word = 8 // bytes of the largest number
	switch encoding {
	case format.PlainDictionary, format.RLEDictionary: //nolint:staticcheck // older writers have the first
		if len(data) == 0 {
			return 0, nil // all values are null
		}
		if n, err = runs(data[1:], int(data[0]), func(int64, uint64) {}); err != nil {
			return 0, err
		}
		size = n * word
	case format.DeltaBinaryPacked:
		n, _, err = deltaHeader(data)
		size = n * word
	case format.DeltaLengthByteArray, format.DeltaByteArray:
		lists := 1
		if encoding == format.DeltaByteArray {
			lists = 2 // the lengths of prefixes, and of what follows them
		}
		for range lists {
			var count, sum int64
			if data, count, sum, err = deltaLengths(data); err != nil {
				return 0, err
			}
			size += sum + count*word
		}
	default: // the values have as many bytes as the page
		size = int64(len(data))
		if c.kind == format.ByteArray {
			size += n * word / 2 // an offset for each
		}
	}
	if err == nil && size > maxPage {
		err = fmt.Errorf("the values of a page have %d bytes, more than %d", size, maxPage)
	}
	return size, err
}

// runs reads values that are width bits wide, in runs of equal values or packed (RLE/bit-packing hybrid).
func runs(data []byte, width int, visit func(count int64, value uint64)) (total int64, err error) {
	const most = 32
	if width > most {
		return 0, fmt.Errorf("a page has values of %d bits, more than %d", width, most)
	}
	for len(data) > 0 {
		head, n := binary.Uvarint(data)
		if n <= 0 {
			return 0, errPageCut
		}
		data = data[n:]
		count, length := head>>1, (width+7)/8
		packed := head&1 != 0
		if packed && count <= maxValues {
			length = int(count) * width
			count *= 8
		}
		if total += int64(min(count, maxValues+1)); total > maxValues {
			return 0, fmt.Errorf("a page has runs of more than %d values", maxValues)
		}
		if length > len(data) {
			return 0, errPageCut
		}
		run := data[:length]
		data = data[length:]
		if !packed {
			visit(int64(count), unpacked(run, 0, width))
			continue
		}
		for i := range int(count) {
			visit(1, unpacked(run, i*width, width))
		}
	}
	return total, nil
}

// unpacked returns the value of width bits at a bit offset, least significant bits first.
func unpacked(data []byte, at, width int) (value uint64) {
	for i := 0; i < width; {
		taken := min(8-(at+i)%8, width-i)
		part := uint64(data[(at+i)/8]>>((at+i)%8)) & (1<<taken - 1)
		value |= part << i
		i += taken
	}
	return value
}

// deltaHeader reads the number of values from a DELTA_BINARY_PACKED header.
func deltaHeader(data []byte) (total int64, rest []byte, err error) {
	var header [3]uint64 // of a block, miniblocks in it, numbers
	for i := range header {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return 0, nil, errPageCut
		}
		header[i], data = v, data[n:]
	}
	if header[2] > maxValues {
		return 0, nil, fmt.Errorf("a page has %d values, more than %d", header[2], maxValues)
	}
	return int64(header[2]), data, nil
}

// deltaLengths reads lengths in DELTA_BINARY_PACKED encoding, and returns their number and sum.
func deltaLengths(data []byte) (rest []byte, total, sum int64, err error) {
	size, n := binary.Uvarint(data)
	if n <= 0 {
		return nil, 0, 0, errPageCut
	}
	miniblocks, _ := binary.Uvarint(data[n:])
	if miniblocks == 0 || size > maxValues || size < miniblocks || size/miniblocks%8 != 0 {
		return nil, 0, 0, fmt.Errorf("a page has blocks of %d values in %d parts", size, miniblocks)
	}
	if total, data, err = deltaHeader(data); err != nil {
		return nil, 0, 0, err
	}
	first, n := binary.Varint(data)
	if n <= 0 {
		return nil, 0, 0, errPageCut
	}
	data = data[n:]
	length := int32(first)
	add := func() error {
		if length < 0 {
			return errors.New("a value has a negative length")
		}
		sum += int64(length)
		return nil
	}
	left := total
	if left > 0 {
		left--
		err = add()
	}
	each := int(size / miniblocks)
	for left > 0 && err == nil {
		least, n := binary.Varint(data)
		if n <= 0 || uint64(len(data)-n) < miniblocks {
			return nil, 0, 0, errPageCut
		}
		widths := data[n : n+int(miniblocks)]
		data = data[n+int(miniblocks):]
		for _, width := range widths {
			if left == 0 {
				break
			}
			block := each * int(width) / 8
			if width > 64 || block > len(data) {
				return nil, 0, 0, errPageCut
			}
			for i := 0; i < each && left > 0 && err == nil; i++ {
				length += int32(least) + int32(unpacked(data, i*int(width), int(width)))
				left--
				err = add()
			}
			data = data[block:]
		}
	}
	return data, total, sum, err
}
