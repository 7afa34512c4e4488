// Package plot draws the curves of a run as SVG files for browsers, on light and on dark pages, without scripts or fonts.
//
//	svg := plot.Chart{Title: "Reward", XLabel: "step", Series: []plot.Series{{Points: points, Smooth: true}}}.SVG()
//
// It must not know what the numbers mean.
package plot

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Point is a value at a place of the horizontal axis.
type Point struct{ X, Y float64 }

// Series is one line of a [Chart]. Its points are in the order of X; those that are not finite are left out.
type Series struct {
	Name   string
	Points []Point
	// Smooth draws the values faintly and a running mean over them.
	Smooth bool
	// Marks draws a dot at each point, for series with few points.
	Marks bool
	// Scatter draws only dots; several points may have the same X.
	Scatter bool
}

// Chart is a diagram with a horizontal and a vertical axis.
type Chart struct {
	Title  string
	XLabel string
	Series []Series
	// Unit makes the vertical axis 0 … 1, for shares; otherwise it fits the values.
	Unit bool
}

// The sizes of the picture, in SVG units.
const (
	width, height                    = 760, 300
	left, right, top, bottom         = 56, 176, 44, 44
	plotWidth, plotHeight            = width - left - right, height - top - bottom
	ticksX, ticksY                   = 8, 5
	maxPoints                        = 600 // of a line; more could not be seen
	labelDistance                    = 15  // between names at the right edge
	maxName                          = 20  // of the characters of a name and its value: so many fit beside the curves
	smoothing                float64 = 0.1 // of the points in the window of a running mean
)

// colours returns the colours of the series on light and on dark pages. Colour-blind
// people can tell them apart (Okabe & Ito 2008).
func colours() [][2]string {
	return [][2]string{{"#0b62b8", "#6cb2f5"}, {"#c2570c", "#f0a35e"}, {"#04806b", "#4fd1b5"}, {"#a3397d", "#e28cc4"}}
}

// SVG draws the chart; nil if there is nothing to draw.
func (c Chart) SVG() []byte {
	lines := c.finite()
	if len(lines) == 0 {
		return nil
	}
	f := c.frame(lines)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(c.Title))
	b.WriteString(style())
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d" rx="6"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="26">%s</text>`+"\n", left, html.EscapeString(c.Title))
	f.axes(&b, c.XLabel)
	for i, s := range lines {
		f.line(&b, s, i)
	}
	f.names(&b, lines)
	smoothed(&b, lines)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func style() string {
	var b strings.Builder
	b.WriteString("<style>\ntext{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#57606a}\n" +
		".title{font-size:15px;font-weight:600;fill:#1f2328}\n.ground{fill:#ffffff}\n.grid{stroke:#d8dee4;stroke-width:1}\n.axis{stroke:#8c959f;stroke-width:1}\n" +
		".line{fill:none;stroke-width:2.25;stroke-linejoin:round;stroke-linecap:round}\n.faint{stroke-width:1.25;opacity:.35}\n.name{font-weight:600}\n")
	light, dark := "", ""
	for i, c := range colours() {
		light += fmt.Sprintf(".c%d{stroke:%s}.f%d{fill:%s}\n", i, c[0], i, c[0])
		dark += fmt.Sprintf(".c%d{stroke:%s}.f%d{fill:%s}\n", i, c[1], i, c[1])
	}
	b.WriteString(light)
	b.WriteString("@media (prefers-color-scheme:dark){\ntext{fill:#9198a1}\n.title{fill:#f0f6fc}\n.ground{fill:#0d1117}\n.grid{stroke:#262c36}\n.axis{stroke:#656c76}\n" +
		dark + "}\n</style>\n")
	return b.String()
}

// largest is the end of every axis: the length of a longer one would be infinite.
const largest = 1e300

// finite returns the series that have points, without what cannot be drawn.
func (c Chart) finite() []Series {
	var out []Series
	for _, s := range c.Series {
		kept := make([]Point, 0, len(s.Points))
		for _, p := range s.Points {
			if !math.IsNaN(p.X+p.Y) && !math.IsInf(p.X, 0) && !math.IsInf(p.Y, 0) {
				kept = append(kept, Point{p.X, max(-largest, min(p.Y, largest))})
			}
		}
		if len(kept) > 0 {
			s.Points = kept
			out = append(out, s)
		}
	}
	return out
}

// frame maps values to places in the picture.
type frame struct {
	x0, x1, y0, y1 float64
	stepX, stepY   float64 // between ticks
}

func (c Chart) frame(lines []Series) frame {
	f := frame{x0: math.Inf(1), x1: math.Inf(-1), y0: math.Inf(1), y1: math.Inf(-1)}
	for _, s := range lines {
		for _, p := range s.Points {
			f.x0, f.x1 = min(f.x0, p.X), max(f.x1, p.X)
			f.y0, f.y1 = min(f.y0, p.Y), max(f.y1, p.Y)
		}
	}
	if f.x0 == f.x1 {
		f.x0, f.x1 = f.x0-1, f.x1+1
	}
	f.stepX = max(niceStep((f.x1-f.x0)/ticksX), 1)
	if c.Unit {
		f.y0, f.y1 = min(f.y0, 0), max(f.y1, 1)
	}
	if f.y0 == f.y1 {
		f.y0, f.y1 = f.y0-0.5, f.y1+0.5
	}
	f.stepY = niceStep((f.y1 - f.y0) / ticksY)
	f.y0, f.y1 = math.Floor(f.y0/f.stepY+1e-9)*f.stepY, math.Ceil(f.y1/f.stepY-1e-9)*f.stepY
	return f
}

// niceStep returns the smallest of 1, 2 and 5 times a power of ten that is at least least.
func niceStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func (f frame) px(x float64) float64 { return left + (x-f.x0)/(f.x1-f.x0)*plotWidth }
func (f frame) py(y float64) float64 { return top + (f.y1-y)/(f.y1-f.y0)*plotHeight }

func (f frame) axes(b *bytes.Buffer, label string) {
	for i := range int(math.Round((f.y1-f.y0)/f.stepY)) + 1 {
		y := f.y0 + float64(i)*f.stepY
		class := "grid"
		if i == 0 {
			class = "axis"
		}
		fmt.Fprintf(b, `<line class="%s" x1="%d" y1="%s" x2="%d" y2="%s"/>`, class, left, num(f.py(y)), left+plotWidth, num(f.py(y)))
		fmt.Fprintf(b, `<text x="%d" y="%s" text-anchor="end">%s</text>`+"\n", left-8, num(f.py(y)+4), tick(y, f.stepY))
	}
	for x := math.Ceil(f.x0/f.stepX) * f.stepX; x <= f.x1+f.stepX*1e-9; x += f.stepX {
		fmt.Fprintf(b, `<text x="%s" y="%d" text-anchor="middle">%s</text>`+"\n", num(f.px(x)), top+plotHeight+18, tick(x, f.stepX))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", left+plotWidth/2, height-8, html.EscapeString(label))
}

// line draws the series of an index. Those that need a colour for the second time are dashed.
func (f frame) line(b *bytes.Buffer, s Series, index int) {
	colour, dashes := index%len(colours()), ""
	if index >= len(colours()) {
		dashes = ` stroke-dasharray="6 4"`
	}
	if s.Scatter {
		f.dots(b, s.Points, colour)
		return
	}
	drawn := thin(s.Points)
	if s.Smooth && len(drawn) > 2 {
		f.path(b, drawn, fmt.Sprintf("line faint c%d", colour), "")
		drawn = thin(runningMean(s.Points))
	}
	f.path(b, drawn, fmt.Sprintf("line c%d", colour), dashes)
	if s.Marks || len(drawn) == 1 {
		f.dots(b, drawn, colour)
	}
}

func (f frame) dots(b *bytes.Buffer, points []Point, colour int) {
	for _, p := range points {
		fmt.Fprintf(b, `<circle class="f%d" cx="%s" cy="%s" r="3.5"/>`, colour, num(f.px(p.X)), num(f.py(p.Y)))
	}
	b.WriteByte('\n')
}

func (f frame) path(b *bytes.Buffer, points []Point, class, dashes string) {
	fmt.Fprintf(b, `<path class="%s"%s d="`, class, dashes)
	for i, p := range points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		b.WriteString(verb + num(f.px(p.X)) + " " + num(f.py(p.Y)))
	}
	b.WriteString("\"/>\n")
}

// names writes the name and the last value of each series at its end, without overlaps.
func (f frame) names(b *bytes.Buffer, lines []Series) {
	type name struct {
		at     float64
		colour int
		text   string
	}
	var list []name
	for i, s := range lines {
		if s.Scatter {
			continue
		}
		last := s.Points[len(s.Points)-1].Y
		if s.Smooth && len(s.Points) > 2 {
			mean := runningMean(s.Points)
			last = mean[len(mean)-1].Y
		}
		list = append(list, name{f.py(last) + 4, i % len(colours()), named(s.Name, short(last, f.y1-f.y0))})
	}
	// Sort by height, then push overlapping names down.
	slices.SortStableFunc(list, func(a, b name) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(list); i++ {
		list[i].at = max(list[i].at, list[i-1].at+labelDistance)
	}
	for _, n := range list {
		fmt.Fprintf(b, `<text class="name f%d" x="%d" y="%s">%s</text>`+"\n", n.colour, left+plotWidth+8, num(n.at), html.EscapeString(n.text))
	}
}

// named is a name with its value. Of a long name the end is shown, which tells it from others.
func named(name, value string) string {
	letters := []rune(name)
	if room := max(maxName-1-len(value), 1); len(letters) > room {
		name = "…" + string(letters[len(letters)-room+1:])
	}
	return strings.TrimSpace(name + " " + value)
}

// smoothed explains the bold lines.
func smoothed(b *bytes.Buffer, lines []Series) {
	for _, s := range lines {
		if n := len(s.Points); s.Smooth && n > 2 {
			fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">bold: mean of the last %d</text>`+"\n", width-8, height-8, window(n))
			return
		}
	}
}

// window is the number of points in a running mean over n.
func window(n int) int { return max(2, int(smoothing*float64(n))) }

// runningMean averages each point with those before it in the window.
func runningMean(points []Point) []Point {
	window := window(len(points))
	out := make([]Point, len(points))
	sum := 0.0
	for i, p := range points {
		sum += p.Y
		if i >= window {
			sum -= points[i-window].Y
		}
		out[i] = Point{p.X, sum / float64(min(i+1, window))}
	}
	return out
}

// thin averages neighbours if there are more than maxPoints.
func thin(points []Point) []Point {
	if len(points) <= maxPoints {
		return points
	}
	out := make([]Point, maxPoints)
	for i := range out {
		from, to := i*len(points)/maxPoints, (i+1)*len(points)/maxPoints
		for _, p := range points[from:to] {
			out[i].X += p.X
			out[i].Y += p.Y
		}
		out[i].X /= float64(to - from)
		out[i].Y /= float64(to - from)
	}
	return out
}

// num writes a coordinate.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// huge values are written with their power of ten.
const huge = 1e9

// tick writes a value of an axis with the digits that its step needs.
func tick(v, step float64) string {
	if step >= huge {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Trim(text, "-0.") == "" {
		return "0"
	}
	return text
}

// short writes a value with three digits, a large one without decimals, and one that
// looks like 0 on an axis of that range as 0.
func short(v, axis float64) string {
	const large, nothing = 1000, 1e-6
	switch {
	case math.Abs(v) < nothing*axis:
		return "0"
	case math.Abs(v) >= huge:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case math.Abs(v) >= large:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
