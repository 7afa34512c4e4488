// The time at the store: all times that the page shows are of its clock, and the reader's may be wrong.

const unsure = 30; // seconds; a smaller difference may come from the header's whole seconds and from the way of the answer

let ahead = 0; // seconds by which the reader's clock is ahead

export const now = () => Date.now() / 1000 - ahead;

// setByDate sets the clock by the header Date of an answer of the store.
export function setByDate(date) {
  const by = (Date.now() - Date.parse(date)) / 1000;
  if (!Number.isNaN(by)) ahead = Math.abs(by) > unsure ? by : 0;
}
