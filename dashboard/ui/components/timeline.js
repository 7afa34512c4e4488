// The spans of an attempt as a tree beside a waterfall. Only the rows in view are in
// the document, so ten thousand spans scroll as ten do.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { count, number, oneLine, plural, seconds } from "../lib/format.js";
import { failed, rewards, took } from "../lib/span.js";
import { build, extent, rows } from "../lib/tree.js";
import { useKeys } from "../hooks.js";

const rowHeight = 28; // px, as in style.css
const margin = 12; // rows beyond the view

export function Timeline({ spans, selected, onSpan }) {
  const [collapsed, setCollapsed] = useState(() => new Set());
  const [view, setView] = useState({ top: 0, height: 600 });
  const place = useRef(null);
  const roots = useMemo(() => build(spans), [spans]);
  const shown = useMemo(() => rows(roots, collapsed), [roots, collapsed]);
  const time = useMemo(() => extent(spans), [spans]);

  useEffect(() => {
    const element = place.current;
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);

  const at = shown.findIndex((n) => n.span.span_id === selected);
  useEffect(() => {
    if (at < 0) return;
    const { scrollTop, clientHeight } = place.current;
    if (at * rowHeight < scrollTop || (at + 1) * rowHeight > scrollTop + clientHeight) place.current.scrollTop = at * rowHeight - clientHeight / 2;
  }, [selected]);

  const toggle = (node) => {
    const next = new Set(collapsed);
    if (!next.delete(node.span.span_id)) next.add(node.span.span_id);
    setCollapsed(next);
  };
  const select = (by) => {
    const node = shown[Math.max(0, Math.min(shown.length - 1, at + by))];
    if (node) onSpan(node.span);
  };
  useKeys({
    j: () => select(1), k: () => select(-1), ArrowDown: () => select(1), ArrowUp: () => select(-1),
    ArrowLeft: () => shown[at] && !collapsed.has(shown[at].span.span_id) && shown[at].children.length && toggle(shown[at]),
    ArrowRight: () => shown[at] && collapsed.has(shown[at].span.span_id) && toggle(shown[at]),
  });

  const top = Math.max(0, Math.min(view.top, shown.length * rowHeight - view.height)); // rows may have gone since the last scroll
  const first = Math.max(0, Math.floor(top / rowHeight) - margin);
  const last = Math.min(shown.length, Math.ceil((top + view.height) / rowHeight) + margin);
  const parents = useMemo(() => roots.length < spans.length, [roots, spans]);
  return html`<div class="timeline">
    <div class="timeline-tools">
      <span>${plural(spans.length, "span")} over ${seconds(time.to - time.from)}</span>
      ${parents && html`<button class="small" onClick=${() => setCollapsed(new Set(rows(roots, new Set()).filter((n) => n.children.length).map((n) => n.span.span_id)))}>Collapse all</button>
      <button class="small" onClick=${() => setCollapsed(new Set())}>Expand all</button>`}
    </div>
    <div class="timeline-rows" ref=${place} style=${{ height: shown.length * rowHeight + 4 + "px" }} role="tree" aria-label="Spans" tabindex="0" aria-activedescendant=${at >= first && at < last ? "span-" + selected : undefined}>
      <div style=${{ height: shown.length * rowHeight + "px" }}>
        <div style=${{ transform: `translateY(${first * rowHeight}px)` }}>
          ${shown.slice(first, last).map((node) => html`<${Row} key=${node.span.span_id} node=${node} time=${time} open=${!collapsed.has(node.span.span_id)} selected=${node.span.span_id === selected} toggle=${toggle} onSpan=${onSpan} />`)}
        </div>
      </div>
    </div>
  </div>`;
}

function Row({ node, time, open, selected, toggle, onSpan }) {
  const { span, children, depth, size } = node;
  const all = time.to - time.from;
  const start = ((span.start_time ?? time.from) - time.from) / all;
  const length = ((span.end_time ?? span.start_time ?? time.from) - (span.start_time ?? time.from)) / all;
  const reward = rewards(span);
  return html`<div class="row ${selected ? "selected" : ""} ${failed(span) ? "failed" : ""}" role="treeitem" id=${"span-" + span.span_id} aria-level=${depth + 1} aria-selected=${selected ? "true" : "false"} aria-expanded=${children.length ? String(open) : undefined} onClick=${() => onSpan(span)}>
    <span class="row-name" style=${{ paddingLeft: Math.min(depth, 24) * 14 + "px" }}>
      ${children.length ? html`<button class="fold" tabindex="-1" aria-label=${open ? "Collapse" : "Expand"} onClick=${(e) => (e.stopPropagation(), toggle(node))}>${open ? "▾" : "▸"}</button>` : html`<span class="fold"></span>`}
      <span class="row-title">${oneLine(span.name, 80)}</span>${!open && html`<small>+${count(size)}</small>`}${reward && html`<b class="chip">${number(reward[0].value)}</b>`}
    </span>
    <span class="row-bar"><span class="bar" style=${{ left: start * 100 + "%", width: Math.max(length * 100, 0.2) + "%" }}></span></span>
    <span class="row-time">${seconds(took(span))}</span>
  </div>`;
}
