// The tree of an attempt's spans, as rows. Pure functions.
import { learned } from "./trained.js";

// build returns the roots, each span as {span, children, size, depth}; size counts the
// spans below. A span whose parent is unknown, or above itself, is a root.
export function build(spans) {
  const nodes = new Map();
  for (const span of spans) nodes.set(span.span_id, { span, children: [], size: 0, depth: 0 });
  const roots = [];
  for (const node of nodes.values()) {
    const parent = nodes.get(node.span.parent_id);
    if (parent && parent !== node) parent.children.push(node);
    else roots.push(node);
  }
  const seen = new Set();
  const order = [];
  const walk = (start) => {
    const stack = [start];
    while (stack.length) {
      const node = stack.pop();
      if (seen.has(node)) continue;
      seen.add(node);
      order.push(node);
      node.children = node.children.filter((c) => !seen.has(c));
      node.children.sort(byStart);
      for (let i = node.children.length - 1; i >= 0; i--) {
        node.children[i].depth = node.depth + 1;
        stack.push(node.children[i]);
      }
    }
  };
  roots.sort(byStart);
  for (const root of roots) walk(root);
  for (const node of nodes.values()) {
    if (seen.has(node)) continue;
    node.depth = 0; // spans that are each other's parents
    roots.push(node);
    walk(node);
  }
  for (let i = order.length - 1; i >= 0; i--) for (const child of order[i].children) order[i].size += child.size + 1;
  return roots;
}

function byStart(a, b) {
  return (a.span.start_time ?? 0) - (b.span.start_time ?? 0) || a.span.sequence_id - b.span.sequence_id;
}

// rows returns the nodes that are seen when those in collapsed hide their children.
export function rows(roots, collapsed) {
  const out = [];
  const stack = [...roots].reverse();
  while (stack.length) {
    const node = stack.pop();
    out.push(node);
    if (!collapsed.has(node.span.span_id)) for (let i = node.children.length - 1; i >= 0; i--) stack.push(node.children[i]);
  }
  return out;
}

// extent returns the first start and the last end of spans. What a learner computes later is not of the attempt's time.
export function extent(spans) {
  let from = Infinity;
  let to = -Infinity;
  for (const s of spans) {
    if (s.name === learned) continue;
    if (s.start_time !== null && s.start_time < from) from = s.start_time;
    const end = s.end_time ?? s.start_time;
    if (end !== null && end > to) to = end;
  }
  return Number.isFinite(from) ? { from, to: Math.max(to, from + 1e-6) } : { from: 0, to: 1 };
}
