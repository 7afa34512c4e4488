package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
)

// A checkpoint consists of 8 bytes of magic, the header's length (uint32), the header (JSON), the parameters, the first
// and the second moments (float32, in the layout's order), and the SHA-256 of everything before it. Numbers are
// little-endian. Snapshots and base models have no moments.
const checkpointMagic = "AGLPOL01"

type checkpointHeader struct {
	Shape  shape   `json:"shape"`
	Step   int64   `json:"step"`
	Decay1 float64 `json:"decay1"`
	Decay2 float64 `json:"decay2"`
	// WeightsOnly is true if there are no moments.
	WeightsOnly bool `json:"weights_only,omitzero"`
}

// encodeWeights encodes parameters without moments.
func encodeWeights(s shape, flat []float32) []byte {
	return encodeCheckpoint(checkpointHeader{Shape: s, WeightsOnly: true}, flat)
}

func encodeCheckpoint(h checkpointHeader, vecs ...[]float32) []byte {
	header, _ := json.Marshal(h) // finite numbers
	out := make([]byte, 0, len(checkpointMagic)+4+len(header)+4*len(vecs)*len(vecs[0])+sha256.Size)
	out = append(out, checkpointMagic...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(header)))
	out = append(out, header...)
	for _, vec := range vecs {
		out, _ = binary.Append(out, binary.LittleEndian, vec) // numbers have a fixed size
	}
	digest := sha256.Sum256(out)
	return append(out, digest[:]...)
}

// checkpoint is a decoded checkpoint. The moments m and v are nil if it has weights only.
type checkpoint struct {
	checkpointHeader
	flat, m, v []float32
}

// decodeCheckpoint verifies and decodes a checkpoint for a model of shape want. Messages mention the name. Errors are
// agl.ErrInvalid; if the bytes are not an intact checkpoint, they are tinker.ErrDamaged too.
func decodeCheckpoint(name string, data []byte, want shape) (checkpoint, error) {
	var c checkpoint
	if len(data) < len(checkpointMagic)+4+sha256.Size || string(data[:len(checkpointMagic)]) != checkpointMagic {
		return c, damaged("%s is not a policy checkpoint: its %d bytes do not begin with %q", name, len(data), checkpointMagic)
	}
	body, digest := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], digest) {
		return c, damaged("%s is damaged: its checksum is %x; the recorded one is %x", name, sum[:4], digest[:4])
	}
	rest := body[len(checkpointMagic):]
	n := int(binary.LittleEndian.Uint32(rest))
	if rest = rest[4:]; n > len(rest) {
		return c, damaged("%s is damaged: its header has %d bytes of %d", name, n, len(rest))
	}
	if err := json.Unmarshal(rest[:n], &c.checkpointHeader); err != nil {
		return c, damaged("%s has an unreadable header: %v", name, err)
	}
	if c.Shape != want {
		return c, invalid("%s belongs to a model with %v; this model has %v", name, c.Shape, want)
	}
	rest = rest[n:]
	size := newLayout(want).size
	vecs := []*[]float32{&c.flat, &c.m, &c.v}
	if c.WeightsOnly {
		vecs = vecs[:1]
	}
	if len(rest) != 4*len(vecs)*size {
		return c, invalid("%s has %d bytes of tensors; the model needs %d", name, len(rest), 4*len(vecs)*size)
	}
	for _, vec := range vecs {
		*vec = make([]float32, size)
		n, _ := binary.Decode(rest, binary.LittleEndian, *vec) // the length is right
		rest = rest[n:]
	}
	return c, nil
}

// Create writes the initial weights of a seed to a new file for Config.Base, durably, and returns the number of parameters.
// It makes the directory if it is missing. An invalid Config is agl.ErrInvalid, and an existing file is agl.ErrConflict.
func Create(cfg Config, seed uint64, file string) (parameters int, err error) {
	if cfg, err = cfg.Checked(); err != nil {
		return 0, err
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return 0, fmt.Errorf("policy: create a base model: %w", err)
		}
		return 0, agl.Errorf(agl.CodeConflict, "%s already exists", file)
	}
	l := newLayout(cfg.shape())
	err = durable.MkdirAll(filepath.Dir(file))
	if err == nil {
		err = durable.WriteFile(file, encodeWeights(l.shape, l.initialize(seed)))
	}
	if err != nil {
		return 0, fmt.Errorf("policy: create a base model: %w", err)
	}
	return l.size, nil
}

// readWeights reads the weights of a file. Another shape than want is agl.ErrInvalid, and a missing file is agl.ErrNotFound.
func readWeights(file string, want shape) ([]float32, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, agl.Errorf(agl.CodeNotFound, "there is no file of weights %s", file)
	}
	if err != nil {
		return nil, fmt.Errorf("policy: read weights: %w", err)
	}
	c, err := decodeCheckpoint(file, data, want)
	return c.flat, err
}
