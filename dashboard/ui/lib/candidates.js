// The candidates of a search for prompts as a tree. Pure functions.

// tree puts each candidate behind its parent: {candidate, depth, children}, the best of the children first. One whose parent is
// not there is a root.
export function tree(candidates) {
  const byID = new Map(candidates.map((c) => [c.resources_id, { candidate: c, children: [] }]));
  const roots = [];
  for (const node of byID.values()) {
    const parent = byID.get(node.candidate.parent);
    if (parent && parent !== node) parent.children.push(node);
    else roots.push(node);
  }
  const out = [];
  const seen = new Set();
  const walk = (nodes, depth) => {
    for (const node of nodes.sort((a, b) => best(b.candidate) - best(a.candidate))) {
      if (seen.has(node)) continue;
      seen.add(node);
      out.push({ ...node, depth });
      walk(node.children, depth + 1);
    }
  };
  walk(roots, 0);
  for (const node of byID.values()) walk([node], 0); // those that are each other's parents
  return out;
}

const best = (c) => c.validation ?? c.score ?? -Infinity;

// interval words a difference of rewards: "0.1 (0.02 to 0.18)"; "" if nothing was compared.
export function interval(gain, number) {
  if (!gain?.pairs) return "";
  return number(gain.mean) + (gain.low === gain.high ? "" : ` (${number(gain.low)} to ${number(gain.high)})`);
}

export const isBetter = (gain) => gain?.pairs > 0 && gain.low > 0 && gain.low !== gain.high;
export const isWorse = (gain) => gain?.pairs > 0 && gain.high < 0 && gain.low !== gain.high;
