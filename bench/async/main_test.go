package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/examples/calculator/recipe"
)

// The interval is that of a table of Student's distribution: 0.02 ± 3.182 · 0.025820 / 2.
func TestInterval(t *testing.T) {
	t.Parallel()
	if got, want := interval([]float64{-0.01, 0.01, 0.03, 0.05}), "+0.020 (-0.021 to +0.061)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := interval([]float64{0.25}); got != "+0.250" {
		t.Errorf("one seed: %s", got)
	}
}

// The 0.95 and 0.99 quantiles of χ² with 10 degrees of freedom are 18.307 and 23.209.
func TestStarvation(t *testing.T) {
	t.Parallel()
	bins := func(last int) []int {
		all := make([]int, durations)
		for i := range all {
			all[i] = 1000
		}
		all[0], all[durations-1] = 2000-last, last
		return all
	}
	for last, want := range map[int]string{1000: "0.0, 1.00", 904: "18.4, 0.05", 892: "23.3, 0.01", 0: "2000.0, 0.00"} {
		if got := starvation(bins(last)); got != want {
			t.Errorf("%d groups in the last bin: %s, want %s", last, got, want)
		}
	}
	if got := starvation(make([]int, durations)); got != "–" {
		t.Errorf("no groups: %s", got)
	}
}

// Of the first half, groups that are under way are not counted; all others fall into the bins alike, unless the slow ones are left out.
func TestBinsOf(t *testing.T) {
	t.Parallel()
	write := func(state admission.State) string {
		dir := t.TempDir()
		data, err := json.Marshal(map[string]any{"state": map[string]any{"async": map[string]any{"accounts": state}}})
		if err != nil {
			t.Fatal(err)
		}
		for i, content := range []string{string(data), "{}"} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("checkpoint-%08d.json", i)), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const groups = 2000
	bins, err := binsOf(write(admission.State{Admitted: 2 * groups, Open: []admission.Group{{ID: 3}, {ID: 5}, {ID: groups}}, Ready: []admission.Group{{ID: 4}}}), 1)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range bins {
		total += n
		if n < groups/durations-60 || n > groups/durations+60 {
			t.Errorf("bins %v of %d groups are uneven", bins, groups)
		}
	}
	if total != groups-3 {
		t.Errorf("%d groups, want %d", total, groups-3)
	}
	if bins, err := binsOf(write(admission.State{}), 1); bins != nil || err != nil {
		t.Errorf("a synchronous run: %v, %v", bins, err)
	}
	// What is log-normal in the recipe is what the bins assume.
	over, random := 0, rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		if recipe.ToolLatency(random.Int64()) > 16.3 { // e^(1.2 · 2.326)
			over++
		}
	}
	if over < 60 || over > 140 {
		t.Errorf("%d of 10,000 latencies are over 16.3 medians, want about 100", over)
	}
}
