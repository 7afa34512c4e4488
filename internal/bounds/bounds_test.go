package bounds_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
)

// The error names the first field that is negative, and a duration as people write it.
func TestNotNegative(t *testing.T) {
	t.Parallel()
	if err := bounds.NotNegative("p: ", bounds.Number("A", 0), bounds.Number("B", int64(1)), bounds.Number("C", time.Second)); err != nil {
		t.Error(err)
	}
	err := bounds.NotNegative("p: ", bounds.Number("A", 1), bounds.Number("B", -90*time.Second), bounds.Number("C", -1))
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "p: B: got -1m30s, must not be negative") {
		t.Error(err)
	}
}
