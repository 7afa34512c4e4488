package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/go-json-experiment/json"
)

// A checkpoint is, in this order: 8 bytes of magic, the header's length (uint32), the header (JSON), then
// parameters, first and second moments (float32 each, in the layout's order), then the SHA-256 of all before.
// Numbers are little-endian. Snapshots and base models are the same without the moments.
const checkpointMagic = "AGLPOL01"

type checkpointHeader struct {
	Shape  shape   `json:"shape"`
	Step   int64   `json:"step"`
	Decay1 float64 `json:"decay1"`
	Decay2 float64 `json:"decay2"`
	// WeightsOnly is true of what has no moments.
	WeightsOnly bool `json:"weights_only,omitzero"`
}

// encode writes the trainer's state, without an unstepped gradient.
func (t *trainer) encode() ([]byte, error) {
	return encodeCheckpoint(checkpointHeader{Shape: t.w.shape, Step: t.step, Decay1: t.decay1, Decay2: t.decay2}, t.w.flat, t.m, t.v)
}

// encodeWeights writes parameters alone.
func encodeWeights(s shape, flat []float32) ([]byte, error) {
	return encodeCheckpoint(checkpointHeader{Shape: s, WeightsOnly: true}, flat)
}

func encodeCheckpoint(h checkpointHeader, vecs ...[]float32) ([]byte, error) {
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(checkpointMagic)+4+len(header)+4*len(vecs)*len(vecs[0])+sha256.Size)
	out = append(out, checkpointMagic...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(header)))
	out = append(out, header...)
	for _, vec := range vecs {
		for _, x := range vec {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	digest := sha256.Sum256(out)
	return append(out, digest[:]...), nil
}

// checkpoint is a decoded checkpoint. The moments of one of weights only are nil.
type checkpoint struct {
	checkpointHeader
	flat, m, v []float32
}

// decodeCheckpoint verifies and reads a checkpoint for a model of shape want. name is for messages. Errors are
// agl.CodeInvalid, and those of bytes that encode did not write tinker.ErrDamaged.
func decodeCheckpoint(name string, data []byte, want shape) (checkpoint, error) {
	var c checkpoint
	if len(data) < len(checkpointMagic)+4+sha256.Size || string(data[:len(checkpointMagic)]) != checkpointMagic {
		return c, damaged("%s is not a policy checkpoint: %d bytes without the mark %q", name, len(data), checkpointMagic)
	}
	body, digest := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], digest) {
		return c, damaged("%s is damaged: its checksum is %x, not %x as recorded", name, sum[:4], digest[:4])
	}
	rest := body[len(checkpointMagic):]
	n := int(binary.LittleEndian.Uint32(rest))
	if rest = rest[4:]; n > len(rest) {
		return c, damaged("%s is damaged: a header of %d bytes in %d", name, n, len(rest))
	}
	if err := json.Unmarshal(rest[:n], &c.checkpointHeader); err != nil {
		return c, damaged("%s has an unreadable header: %v", name, err)
	}
	if c.Shape != want {
		return c, invalid("%s is of a model with %v; this one has %v", name, c.Shape, want)
	}
	rest = rest[n:]
	size := newLayout(want).size
	vecs := []*[]float32{&c.flat, &c.m, &c.v}
	if c.WeightsOnly {
		vecs = vecs[:1]
	}
	if len(rest) != 4*len(vecs)*size {
		return c, invalid("%s holds %d bytes of tensors; %d are needed", name, len(rest), 4*len(vecs)*size)
	}
	for _, vec := range vecs {
		*vec = make([]float32, size)
		for i := range *vec {
			(*vec)[i] = math.Float32frombits(binary.LittleEndian.Uint32(rest))
			rest = rest[4:]
		}
	}
	return c, nil
}

// restore replaces the trainer's state and drops an unstepped gradient.
func (t *trainer) restore(c checkpoint, withOptimizer bool) {
	copy(t.w.flat, c.flat)
	clear(t.grad)
	t.resetOptimizer()
	if withOptimizer {
		copy(t.m, c.m)
		copy(t.v, c.v)
		t.step, t.decay1, t.decay2 = c.Step, c.Decay1, c.Decay2
	}
	t.w.repackForward()
	t.w.repackBackward()
}
