package proxy

import (
	"bytes"
	"io"
	"net/http"
)

// refusalRead is how much of an error is read to find out what was refused.
const refusalRead = 4 << 10

// refusal is in the error of a backend that gives no token ids in streams: SGLang's,
// for chat completions. It proves nothing by itself, as there are backends whose
// errors repeat the request.
const refusal = "return_token_ids is not supported"

// refusesIDs reports whether a backend seems to have refused a stream for the
// token ids that were asked for. What it read can be read again.
func (d *dispatcher) refusesIDs(res *http.Response) bool {
	c, b := d.c, d.backend
	if res.StatusCode != http.StatusBadRequest || !c.stream || c.path == "/completions" || !c.wantsIDs(b) || b.Replay || c.whole == b {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(res.Body, refusalRead))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	// A body that cannot be read is the relay's to report.
	return err == nil && bytes.Contains(head, []byte(refusal))
}

// askWhole asks a backend that has refused a stream for the whole reply. If it
// gives that, its streams are replayed from then on, as with [Model.Replay]; if
// it refuses that as well, the agent gets its first answer.
func (d *dispatcher) askWhole(refused *http.Response) (*http.Response, error) {
	c, b := d.c, d.backend
	c.whole = b
	req, f := d.build(b)
	if f != nil {
		discard(refused.Body)
		return nil, f
	}
	res, err := d.roundTrip(req)
	if err == nil && res.StatusCode == http.StatusBadRequest {
		c.whole = nil
		discard(res.Body)
		return refused, nil
	}
	discard(refused.Body)
	switch {
	case err != nil || res.StatusCode >= 300:
		c.whole = nil
	case !b.state.whole.Swap(true):
		d.p.cfg.Logger.Info("the backend gives token ids in whole replies only: its streams are replayed", "model", b.Name, "backend", b.base.Redacted())
	}
	return res, err
}
