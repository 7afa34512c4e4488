package sqlite

import "testing"

// A row whose header is damaged can read as zeros, whose checksum is that of nothing.
func TestEmptyPayload(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if document, err := c.decode(codecRaw, 0, 0, nil); err == nil {
		t.Errorf("got the document %q of a row of zeros, want an error", document)
	}
	for _, compress := range []bool{false, true} {
		codec, payload, crc := c.encode(nil, []byte("{}"), compress)
		if document, err := c.decode(codec, 2, crc, payload); err != nil || string(document) != "{}" {
			t.Errorf("got %q, %v", document, err)
		}
	}
}
