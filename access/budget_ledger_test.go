package access

import (
	"fmt"
	"testing"
	"time"

	"github.com/agl-go/agl"
)

// Inventing holders does not make the ledger of a budget grow for ever; those that are there go on.
func TestHoldersAreBounded(t *testing.T) {
	t.Parallel()
	b := &book{ledger: ledger{Leases: map[string]lease{}}}
	now := time.Now()
	ask := func(holder string, sequence int64, at time.Time) error {
		_, err := charge([]*book{b}, &Charge{Holder: holder, Sequence: sequence, Known: sequence - 1}, at)
		return err
	}
	for i := range maxHolders {
		b.Leases[fmt.Sprint("h", i)] = lease{Sequence: 1, Until: agl.TimestampOf(now.Add(leaseLife))}
	}
	if err := ask("one more", 1, now); agl.ErrorCode(err) != agl.CodeExhausted {
		t.Errorf("one more: %v", err)
	}
	if err := ask("h7", 2, now); err != nil {
		t.Errorf("one of them: %v", err)
	}
	if err := ask("one more", 1, now.Add(2*leaseLife)); err != nil || len(b.Leases) != 1 {
		t.Errorf("when the others are silent: %v, %d leases", err, len(b.Leases))
	}
}
