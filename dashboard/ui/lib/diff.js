// A difference of two texts by lines (Myers, "An O(ND) Difference Algorithm and Its
// Variations", 1986).

const tooMany = 2000; // edits; texts that differ more are shown as replaced

// diff returns [{sign, line}], where sign is " ", "-" or "+".
export function diff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  const trace = [];
  const v = new Map([[1, 0]]);
  for (let d = 0; d <= Math.min(a.length + b.length, tooMany); d++) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) : v.get(k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      v.set(k, x);
      if (x >= a.length && x - k >= b.length) return walkBack(a, b, trace);
    }
  }
  return [...a.map((line) => ({ sign: "-", line })), ...b.map((line) => ({ sign: "+", line }))];
}

function walkBack(a, b, trace) {
  const out = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const v = trace[d];
    const k = x - y;
    const before = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : v.get(before);
    const fromY = d === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY && a[x - 1] === b[y - 1]) out.push({ sign: " ", line: a[--x] }), y--;
    if (d === 0) break;
    if (x === fromX) out.push({ sign: "+", line: b[--y] });
    else out.push({ sign: "-", line: a[--x] });
  }
  return out.reverse();
}
