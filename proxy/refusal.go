package proxy

import (
	"bytes"
	"io"
	"net/http"
)

// refusalRead is how much of an error is read to find out what was refused.
const refusalRead = 4 << 10

// refusesIDs reports whether a backend has refused a stream for the token ids
// that were asked for, as SGLang does for chat completions. From then on it is
// asked for the whole reply, as with [Model.Replay], and so is this call.
func (d *dispatcher) refusesIDs(res *http.Response) bool {
	c, b := d.c, d.backend
	if res.StatusCode != http.StatusBadRequest || !c.stream || c.path == "/completions" || !c.wantsIDs(b) || d.whole == b {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(res.Body, refusalRead))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	// A body that cannot be read is the relay's to report.
	if err != nil || !bytes.Contains(head, []byte("return_token_ids")) || !bytes.Contains(head, []byte("stream")) {
		return false
	}
	if !b.state.whole.Swap(true) {
		d.p.cfg.Logger.Info("the backend gives token ids in whole replies only: its streams are replayed", "model", b.Name, "backend", b.base.Redacted())
	}
	d.whole = b
	return true
}
