package client

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// decide settles the encoding, unless it is configured.
func (c *Client) decide(e Encoding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.encoding == Auto {
		c.encoding = e
	}
}

func (c *Client) encodingNow() Encoding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.encoding
}

// accept is the media type of results.
func (c *Client) accept() string {
	if c.encodingNow() == Protobuf {
		return wire.ProtobufType
	}
	return wire.JSONType
}

// forwardRequest encodes one request of a batch.
func (c *Client) forwardRequest(s *server, f wire.ForwardRequest, e Encoding) (request, error) {
	if e == Protobuf {
		r := request{path: wire.ForwardBackward, body: f.Protobuf(), media: wire.ProtobufType, accept: wire.ProtobufType}
		if s.zstd {
			r.body, r.zstd = c.zstd.EncodeAll(r.body, nil), true
		}
		return r, nil
	}
	r := request{path: wire.ForwardBackward, accept: wire.JSONType}
	if f.ForwardOnly {
		r.path = wire.Forward
	}
	var err error
	if r.body, err = f.JSON(); err != nil {
		return r, invalid("data: %w", err)
	}
	return r, nil
}

// submitForward sends a request of a batch in the encoding that the server takes.
func (c *Client) submitForward(ctx context.Context, s *server, f wire.ForwardRequest, repeat bool) (rep reply, taken, inDoubt bool, err error) {
	for {
		e := c.encodingNow()
		r, err := c.forwardRequest(s, f, e)
		if err != nil {
			return reply{}, false, false, err
		}
		r.repeat = repeat
		rep, taken, inDoubt, err := c.submit(ctx, r)
		if refused, ok := errors.AsType[*mediaError](err); ok && e == Auto {
			c.decide(Protobuf)
			c.cfg.Logger.DebugContext(ctx, "client: the server refuses JSON; protobuf from here on", "error", refused)
			continue
		}
		if err == nil && e == Auto {
			c.decide(JSON)
		}
		return rep, taken, inDoubt, err
	}
}

// forwardResult reads a result in whichever encoding it came.
func forwardResult(rep reply, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	decode := wire.DecodeForwardOutputJSON
	if rep.media == wire.ProtobufType {
		decode = wire.DecodeForwardOutputProtobuf
	}
	out, err := decode(rep.body)
	if err != nil {
		return tinker.ForwardResult{}, agl.Errorf(agl.CodeInternal, "client: %w", err)
	}
	res, err := out.Result(p)
	if err != nil {
		return tinker.ForwardResult{}, agl.Errorf(agl.CodeInternal, "client: %w", err)
	}
	return res, nil
}

// bytesPerToken and bytesPerDatum estimate the size of a request from above, in JSON: five numbers of up to
// a dozen digits for each position.
const (
	bytesPerToken = 60
	bytesPerDatum = 400
)

// chunks cuts a batch into requests, in order.
func (s *server) chunks(data []tinker.Datum) [][]tinker.Datum {
	var out [][]tinker.Datum
	begin, size := 0, 0
	for i := range data {
		n := bytesPerDatum + bytesPerToken*len(data[i].Input)
		if i > begin && (i-begin >= s.chunkData || size+n > s.chunkBytes) {
			out = append(out, data[begin:i])
			begin, size = i, 0
		}
		size += n
	}
	return append(out, data[begin:])
}

// merge joins the results of the requests of a batch. Metrics that are sums, or extremes, by the suffix of their
// names are joined so, others are averaged over the data.
func merge(parts []tinker.ForwardResult) tinker.ForwardResult {
	if len(parts) == 1 {
		return parts[0]
	}
	out := tinker.ForwardResult{Metrics: map[string]float64{}}
	total := 0.0
	for _, p := range parts {
		total += float64(len(p.Logprobs))
	}
	for i, p := range parts {
		for _, losses := range p.Losses {
			// In the order in which one request would have added them.
			for _, v := range losses {
				out.Loss += float64(v)
			}
		}
		out.Logprobs = append(out.Logprobs, p.Logprobs...)
		out.Losses = append(out.Losses, p.Losses...)
		for name, v := range p.Metrics {
			before, there := out.Metrics[name]
			switch {
			case strings.HasSuffix(name, ":sum"):
				out.Metrics[name] = before + v
			case strings.HasSuffix(name, ":min") && there && i > 0:
				out.Metrics[name] = min(before, v)
			case strings.HasSuffix(name, ":max") && there && i > 0:
				out.Metrics[name] = max(before, v)
			case strings.HasSuffix(name, ":min"), strings.HasSuffix(name, ":max"):
				out.Metrics[name] = v
			default:
				out.Metrics[name] = before + v*float64(len(p.Logprobs))/total
			}
		}
	}
	return out
}

// summed adds the gradient of the sum of a batch's losses on an engine that averages.
//
// The gradient of cross_entropy is that of importance_sampling where the sampler's log-probabilities are those of
// now, and that one can be scaled: a forward pass goes first. An engine without importance_sampling averages.
func (m *model) summed(ctx context.Context, p tinker.ForwardParams, what effect) (tinker.ForwardResult, error) {
	if m.gradient {
		return tinker.ForwardResult{}, agl.Errorf(agl.CodeIllegalState, "client: this engine averages over all data since the last step; there can be one ForwardBackward for each OptimStep")
	}
	sent := p
	switch {
	case p.Loss.Name == tinker.DRO:
		return tinker.ForwardResult{}, agl.Errorf(agl.CodeUnimplemented, "client: loss: this engine averages, and %q is not linear in the advantages by which that could be made up for", p.Loss.Name)
	case p.Loss.Name == tinker.CrossEntropy && !m.server.engine.sums():
		return m.pass(ctx, p, what)
	case p.Loss.Name == tinker.CrossEntropy:
		now, err := m.pass(ctx, p, reads)
		if err != nil {
			return tinker.ForwardResult{}, err
		}
		sent = tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.ImportanceSampling}, Data: slices.Clone(p.Data)}
		for i := range sent.Data {
			d := &sent.Data[i]
			d.Logprobs, d.Advantages = now.Logprobs[i], slices.Repeat([]float32{1}, len(d.Input))
		}
	}
	data, factors, err := scale(sent)
	if err != nil {
		return tinker.ForwardResult{}, err
	}
	res, err := m.pass(ctx, tinker.ForwardParams{Data: data, Loss: sent.Loss}, what)
	if err != nil {
		return tinker.ForwardResult{}, err
	}
	if p.Loss.Name != tinker.CrossEntropy {
		unscale(&res, factors)
		return res, nil
	}
	res.Loss = 0
	for i := range res.Losses {
		res.Losses[i] = p.Loss.Elementwise(&p.Data[i], res.Logprobs[i])
		for _, v := range res.Losses[i] {
			res.Loss += float64(v)
		}
	}
	return res, nil
}

// scale makes a batch for an engine that averages: it returns data whose advantages make the average the sum,
// and the factor of each datum. The losses that have advantages are linear in them, as r·A and
// min(r·A, clip(r)·A) are for a positive factor.
func scale(p tinker.ForwardParams) ([]tinker.Datum, []float32, error) {
	data := slices.Clone(p.Data)
	factors := make([]float32, len(data))
	for i := range data {
		d := &data[i]
		sum := float64(len(d.Input))
		if d.Weights != nil {
			sum = 0
			for _, w := range d.Weights {
				sum += float64(w)
			}
		}
		if !(sum > 0) {
			return nil, nil, invalid("data[%d]: weights: their sum is %v, by which this engine divides", i, sum)
		}
		factors[i] = float32(sum * float64(len(data)))
		d.Advantages = slices.Clone(d.Advantages)
		for j := range d.Advantages {
			d.Advantages[j] *= factors[i]
		}
	}
	return data, factors, nil
}

// unscale gives the losses of the batch before [scale].
func unscale(res *tinker.ForwardResult, factors []float32) {
	res.Loss = 0
	for i, losses := range res.Losses {
		for j := range losses {
			losses[j] /= factors[i]
			res.Loss += float64(losses[j])
		}
	}
}
