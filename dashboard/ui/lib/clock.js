// The time at the store: all times that the page shows are of its clock, and the reader's may be wrong.

const unsure = 30; // seconds: the store tells whole ones, and its answer takes a while

let ahead = 0; // seconds by which the reader's clock is ahead

export const now = () => Date.now() / 1000 - ahead;

// heard notes the time of an answer of the store, from its header Date.
export function heard(date) {
  const by = (Date.now() - Date.parse(date)) / 1000;
  if (!Number.isNaN(by)) ahead = Math.abs(by) > unsure ? by : 0;
}
