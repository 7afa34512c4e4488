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
		_, err := charge([]*book{b}, &Charge{Holder: holder, Sequence: sequence, Known: sequence - 1}, at, now)
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

// A process that begins after the system's clock was set ends no lease before its holder could tell,
// and that of a holder who is gone no later than after a silence of leaseLife.
func TestLeasesWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	was := time.Now()
	for _, by := range []time.Duration{-24 * time.Hour, -time.Hour, 0, time.Hour, 24 * time.Hour} {
		b := &book{limit: Amounts{Tokens: 100}}
		charged := func(began, at time.Time, c Charge) Charged {
			t.Helper()
			answer, err := charge([]*book{b}, &c, at, began.Add(leaseLife))
			if err != nil {
				t.Fatalf("%s: %v", by, err)
			}
			return answer
		}
		need := []Amounts{{Tokens: 30}}
		for _, holder := range []string{"stays", "gone"} {
			charged(was, was.Add(time.Second), Charge{Holder: holder, Sequence: 1, Needs: need})
		}
		began := was.Add(by)
		got := charged(began, began.Add(time.Second), Charge{Holder: "another", Sequence: 1})
		if got.Reserved.Tokens != 60 || got.Spent.Tokens != 0 {
			t.Errorf("set by %s: at once %+v", by, got)
		}
		got = charged(began, began.Add(time.Minute), Charge{Holder: "stays", Sequence: 2, Known: 1, Reserved: need[0]})
		if got.Lost || got.Reserved.Tokens != 60 {
			t.Errorf("set by %s: a holder that tells again: %+v", by, got)
		}
		got = charged(began, began.Add(leaseLife+2*time.Second), Charge{Holder: "another", Sequence: 2, Known: 1})
		if got.Reserved.Tokens != 30 || got.Spent.Tokens != 30 {
			t.Errorf("set by %s: after a silence %+v", by, got)
		}
	}
}
