package client

import (
	"strings"

	"github.com/agl-go/agl/tinker"
)

// bytesPerToken and bytesPerDatum are upper estimates of the size of a request in JSON: five numbers of up to a dozen
// digits for each position.
const (
	bytesPerToken = 60
	bytesPerDatum = 400
)

// divide divides a batch into requests of at most maxData data and about maxBytes bytes, in order. A datum that is too
// large goes alone.
func divide(data []tinker.Datum, maxData, maxBytes int) [][]tinker.Datum {
	var out [][]tinker.Datum
	begin, size := 0, 0
	for i := range data {
		n := bytesPerDatum + bytesPerToken*len(data[i].Input)
		if i > begin && (i-begin >= maxData || size+n > maxBytes) {
			out = append(out, data[begin:i])
			begin, size = i, 0
		}
		size += n
	}
	return append(out, data[begin:])
}

// merge joins the results of the requests of a batch. A metric whose name ends in :sum, :min or :max is joined
// accordingly; others are averaged over the data.
func merge(parts []tinker.ForwardResult) tinker.ForwardResult {
	if len(parts) == 1 {
		return parts[0]
	}
	out := tinker.ForwardResult{Metrics: map[string]float64{}}
	total := 0.0
	for _, p := range parts {
		total += float64(len(p.Logprobs))
	}
	for _, p := range parts {
		for _, losses := range p.Losses {
			// Added in the order in which one request would have added them, for the same bits.
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
			case strings.HasSuffix(name, ":min") && there:
				out.Metrics[name] = min(before, v)
			case strings.HasSuffix(name, ":max") && there:
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
