// A line chart (uPlot) that follows the width of its place and the colours of the page.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "../lib/html.js";
import { number, ticks } from "../lib/format.js";
import { useDark, useWidth } from "../hooks.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const colours = ["--accent", "--good", "--warn", "--bad", "--violet", "--teal", "--pink", "--muted"];

// Between two steps there is none.
const wholeSteps = [1, 10, 100, 1000, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((n) => [n, 2 * n, 5 * n]);

// These tell lines of the same colour apart.
const dashes = [{ dash: [], border: "solid" }, { dash: [8, 4], border: "dashed" }, { dash: [2, 3], border: "dotted" }];
const dashOf = (i) => dashes[Math.floor(i / colours.length) % dashes.length];

// wide is the width of an axis in pixels: of its numbers, and of the marks beside them.
const wide = (_, words) => Math.max(56, 20 + 7.5 * Math.max(0, ...(words || []).map((w) => w.length)));

// A line joins the values of a series. A single one is a point.
const alone = (plot, i) => plot.data[i].filter((y) => y !== null).length < 2;

const most = 1e300; // beyond it the length of a scale is infinite, and uPlot draws nothing

// steps are the ends of the axis of steps: a single one gets a step of room on both sides.
const steps = ({ data: [all] }, low, high) => (all.length === 1 ? [Math.max(0, all[0] - 1), all[0] + 1] : [low, high]);

// roomy are the ends of a scale: a line that is flat gets room of its own size.
function roomy(_, low, high) {
  const [min, max] = [Math.max(low, -most), Math.min(high, most)];
  const room = min === max ? Math.abs(min) / 10 || 1 : 0;
  return low === null ? [0, 1] : room ? [min - room, max + room] : uPlot.rangeNum(min, max, 0.1, true);
}

// Chart draws series over data, the form of which is uPlot's: [x, y1, y2, …]. bands fill the space between two series. A click
// calls open with the x of the point that is nearest.
export function Chart({ label, data, series, height = 160, time = false, range, bands = [], open }) {
  const [place, width] = useWidth();
  const dark = useDark();
  const plot = useRef(null);
  useEffect(() => {
    if (!width) return;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    plot.current = new uPlot(
      {
        width, height, cursor: { drag: { x: false, y: false } }, legend: { markers: { dash: (_, i) => dashOf(i - 1).border } },
        scales: { x: time ? {} : { time, range: steps }, y: { range: range || roomy } },
        bands: bands.map((b) => ({ ...b, fill: colour(b.fill) + "22" })),
        axes: [{ ...axis, incrs: time ? undefined : wholeSteps }, { ...axis, values: (_, numbers, __, ___, step) => ticks(numbers, step), size: wide }],
        series: [time ? {} : { label: "step" }, ...series.map((s, i) => ({
          label: s.label, stroke: colour(s.colour || colours[i % colours.length]), width: 2, dash: dashOf(i).dash, spanGaps: true, points: { show: alone },
          value: (_, y, __, at) => ((at ?? null) === null ? "--" : number(y)), ...s.options,
        }))],
      },
      data, place.current,
    );
    if (open) {
      plot.current.over.classList.add("opens");
      plot.current.over.addEventListener("click", () => {
        const { idx } = plot.current.cursor;
        if (idx !== null && idx !== undefined) open(plot.current.data[0][idx]);
      });
    }
    return () => plot.current.destroy();
  }, [width, series.map((s) => s.label).join(), dark]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<figure class="chart"><figcaption>${label}</figcaption><div ref=${place} style=${{ minHeight: height + "px" }}></div></figure>`;
}
