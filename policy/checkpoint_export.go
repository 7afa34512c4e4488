package policy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
)

// safetensor is the description of a tensor in the header of a safetensors file.
type safetensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// Export writes the weights of a checkpoint, a snapshot or a base model in the safetensors format: float32, little-endian,
// row-major. A matrix has the shape (inputs, outputs), so that y = x·W; the gain of a norm has one dimension. Columns that
// exist for the kernels only are left out. Another shape than that of the configuration is agl.ErrInvalid, and a missing
// file agl.ErrNotFound.
//
// The format: https://huggingface.co/docs/safetensors.
func Export(cfg Config, file string, w io.Writer) error {
	cfg, err := cfg.Checked()
	if err != nil {
		return err
	}
	weights, err := readWeights(file, cfg.shape())
	if err != nil {
		return err
	}
	l := newLayout(cfg.shape())
	header := make(map[string]safetensor, len(l.allTensors))
	size := 0
	for _, t := range l.allTensors {
		end := size + 4*t.rows*l.used(t)
		header[t.name] = safetensor{DType: "F32", Shape: l.exported(t), Offsets: [2]int{size, end}}
		size = end
	}
	text, _ := json.Marshal(header, json.Deterministic(true)) // texts and integers
	const align = 8
	for len(text)%align != 0 {
		text = append(text, ' ')
	}
	out := bufio.NewWriter(w) // it keeps the first error
	_ = binary.Write(out, binary.LittleEndian, uint64(len(text)))
	_, _ = out.Write(text)
	for _, t := range l.allTensors {
		for i, flat := 0, t.in(weights); i < t.rows; i++ {
			_ = binary.Write(out, binary.LittleEndian, flat[i*t.cols:][:l.used(t)])
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("policy: export: %w", err)
	}
	return nil
}

// used is the number of a tensor's columns that have a meaning.
func (l *layout) used(t tensor) int {
	if t.name == l.head.name {
		return l.Vocab
	}
	return t.cols
}

// exported is the shape of a tensor in a file: a single row is a vector.
func (l *layout) exported(t tensor) []int {
	if t.rows == 1 {
		return []int{l.used(t)}
	}
	return []int{t.rows, l.used(t)}
}
