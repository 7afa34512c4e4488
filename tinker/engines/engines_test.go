package engines

import (
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

func TestSeed(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{0, 1, math.MaxInt32 - 8} {
		if got := (Engine{}).Seed(seed, 8); got != seed {
			t.Errorf("%d, which every engine takes, became %d", seed, got)
		}
	}
	narrow := map[uint64]uint64{}
	for _, seed := range []uint64{math.MaxInt32 - 7, math.MaxInt32, 1 << 31, 1<<31 + 1, 1 << 53, 1<<53 + 1, 1 << 63, math.MaxUint64} {
		if got := (Engine{WideSeeds: true}).Seed(seed, 8); got != seed {
			t.Errorf("%d became %d on an engine of wide seeds", seed, got)
		}
		got := (Engine{}).Seed(seed, 8)
		if got >= 1<<30 {
			t.Errorf("%d became %d, which is wide", seed, got)
		}
		if other, there := narrow[got]; there {
			t.Errorf("%d and %d are the same seed %d", seed, other, got)
		}
		narrow[got] = seed
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, e := range All() {
		if err := e.Validate(); err != nil || seen[e.Name] || e.Name == "" || e.Title == "" {
			t.Errorf("%+v: %v", e, err)
		}
		seen[e.Name] = true
		if got, err := Find(e.Name); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("Find(%q) is %+v, %v", e.Name, got, err)
		}
		// What a client says of an engine is what it can make of it.
		can := e.WithDefaults().Capabilities(nil)
		if e.Normalization == DatumMean && (slices.Contains(can.Losses, tinker.DRO) || !can.SummedLoss) || can.SingleGradient != (e.Normalization == DatumMean) {
			t.Errorf("%s: %+v", e.Name, can)
		}
		if e.SelfDescribing {
			said := FromWire(ToWire(can, e.Order))
			said.Name, said.Title, said.Encoding = e.Name, e.Title, e.Encoding
			if !reflect.DeepEqual(said, e) {
				t.Errorf("%s says %+v of itself, the table %+v", e.Name, said, e)
			}
		}
	}
	if _, err := Find("verl"); !errors.Is(err, agl.ErrNotFound) || !strings.Contains(err.Error(), SkyRLJAX) {
		t.Error(err)
	}
	for _, bad := range []Engine{{Encoding: "xml"}, {Order: "random"}, {Normalization: "median"}} {
		if err := bad.Validate(); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The documentation has every engine of the table.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/engines.md says nothing of %s", name)
		}
	}
}
