package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// texts reads a picture as a strict XML parser does, and returns what is written in
// it.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var all []string
	inText := false
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("not XML: %v in\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				all = append(all, string(e))
			}
		}
	}
}

func points(values ...float64) []Point {
	out := make([]Point, len(values))
	for i, v := range values {
		out[i] = Point{float64(i + 1), v}
	}
	return out
}

func TestChart(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		chart Chart
		want  []string // texts, in their order
	}{
		"a share has an axis from 0 to 1": {
			Chart{Title: "Pass <rate>", XLabel: "step", Unit: true, Series: []Series{{Name: "val", Points: points(0.3, 0.5), Marks: true}}},
			[]string{"Pass <rate>", "0", "0.2", "0.4", "0.6", "0.8", "1.0", "1", "2", "step", "val 0.5"},
		},
		"values decide otherwise": {
			Chart{Title: "Loss", XLabel: "step", Series: []Series{{Points: points(-3, 12, 41)}}},
			[]string{"Loss", "-10", "0", "10", "20", "30", "40", "50", "1", "2", "3", "step", "41"},
		},
		"one value": {
			Chart{Title: "One", XLabel: "round", Series: []Series{{Points: []Point{{4, 7}}}}},
			[]string{"One", "6.4", "6.6", "6.8", "7.0", "7.2", "7.4", "7.6", "3", "4", "5", "round", "7"},
		},
		"next to nothing": {
			Chart{Title: "Zero", XLabel: "step", Series: []Series{{Points: points(-1, -7e-10)}}},
			[]string{"Zero", "-1.0", "-0.8", "-0.6", "-0.4", "-0.2", "0", "1", "2", "step", "0"},
		},
		"what is too large to be true": {
			Chart{Title: "Huge", XLabel: "step", Series: []Series{{Name: "r", Points: points(1e308, 0.5, -1e308)}}},
			[]string{"Huge", "-1e+300", "-5e+299", "0", "5e+299", "1e+300", "1", "2", "3", "step", "r -1e+300"},
		},
		"a name that is too long for its place": {
			Chart{Title: "Long", XLabel: "step", Series: []Series{{Name: "validation/reward_mean", Points: points(0, 0.625)}, {Name: "validation/ci95/1", Points: points(0, 1)}}},
			[]string{"Long", "0", "0.2", "0.4", "0.6", "0.8", "1.0", "1", "2", "step", "validation/ci95/1 1", "…n/reward_mean 0.625"},
		},
		"what is no number is left out": {
			Chart{Title: "Gaps", XLabel: "step", Unit: true, Series: []Series{{Points: points(0.5, math.NaN(), math.Inf(1), 0.75)}, {Name: "empty", Points: points(math.NaN())}}},
			[]string{"Gaps", "0", "0.2", "0.4", "0.6", "0.8", "1.0", "1", "2", "3", "4", "step", "0.75"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svg := test.chart.SVG()
			if diff := cmp.Diff(test.want, texts(t, svg)); diff != "" {
				t.Errorf("texts (-want +got):\n%s", diff)
			}
			if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
				t.Errorf("a coordinate is no number:\n%s", svg)
			}
		})
	}
	if svg := (Chart{Series: []Series{{Points: points(math.NaN())}}}).SVG(); svg != nil {
		t.Errorf("a picture of nothing: %s", svg)
	}
}

// TestNamesFit: a name and its value end inside the picture, also in the wide font that browsers on Linux have, DejaVu Sans Bold.
func TestNamesFit(t *testing.T) {
	t.Parallel()
	const wide = 8 // px of a character of "…n/reward_mean 0.958", on average
	svg := string(Chart{Title: "Long", Series: []Series{{Name: "validation/reward_mean", Points: points(0, 0.958)}}}.SVG())
	found := regexp.MustCompile(`<text class="name[^>]* x="([0-9]+)"[^>]*>([^<]+)<`).FindStringSubmatch(svg)
	if found == nil {
		t.Fatalf("no name in %s", svg)
	}
	x, err := strconv.Atoi(found[1])
	if end := float64(x) + wide*float64(utf8.RuneCountInString(found[2])); err != nil || end > width {
		t.Errorf("%q ends at %g of %d, %v", found[2], end, width, err)
	}
}

func TestManyPointsAreThinned(t *testing.T) {
	t.Parallel()
	values := make([]float64, 100_000)
	for i := range values {
		values[i] = math.Sin(float64(i) / 1000)
	}
	svg := Chart{Title: "Many", Series: []Series{{Points: points(values...), Smooth: true}}}.SVG()
	if n := len(svg); n > 40_000 {
		t.Errorf("the picture has %d bytes", n)
	}
}

// Names whose lines end at one height are written apart.
func TestNamesDoNotOverlap(t *testing.T) {
	t.Parallel()
	svg := string(Chart{Unit: true, Series: []Series{{Name: "a", Points: points(1, 0.9)}, {Name: "b", Points: points(1, 0.9)}, {Name: "c", Points: points(1, 0.91)}}}.SVG())
	seen := map[string]bool{}
	for _, part := range strings.Split(svg, `<text class="name`)[1:] {
		_, rest, _ := strings.Cut(part, `y="`)
		y, _, _ := strings.Cut(rest, `"`)
		if seen[y] {
			t.Errorf("two names at height %s", y)
		}
		seen[y] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d names", len(seen))
	}
}

func TestRunningMean(t *testing.T) {
	t.Parallel()
	got := runningMean(points(2, 4, 6, 8))
	if diff := cmp.Diff([]Point{{1, 2}, {2, 3}, {3, 5}, {4, 7}}, got); diff != "" {
		t.Error(diff)
	}
}

// TestManySeries: a series that has the colour of another one is dashed.
func TestManySeries(t *testing.T) {
	t.Parallel()
	var series []Series
	for i := range len(colours()) + 2 {
		series = append(series, Series{Points: points(float64(i), float64(i+1))})
	}
	if n := strings.Count(string(Chart{Series: series}.SVG()), "stroke-dasharray"); n != 2 {
		t.Errorf("%d of %d series are dashed, want 2", n, len(series))
	}
}
