package algorithm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/agl-go/agl"
)

// Fingerprint tells datasets apart: their number of tasks and a hash of them all.
func Fingerprint(data agl.Dataset) (string, error) {
	h := sha256.New()
	var length [8]byte
	for i := range data.Len() {
		task, err := data.Task(i)
		if err != nil {
			return "", err
		}
		binary.LittleEndian.PutUint64(length[:], uint64(len(task)))
		h.Write(length[:])
		h.Write(task)
	}
	return fmt.Sprintf("%d tasks %s", data.Len(), hex.EncodeToString(h.Sum(nil)[:8])), nil
}
