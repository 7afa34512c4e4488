// Numbers, times and texts as people read them.
import { now as atStore } from "./clock.js";

// known tells numbers from whatever else agents may have written in their place.
const known = (x) => typeof x?.valueOf() === "number" && !Number.isNaN(x.valueOf());

export function seconds(s) {
  if (!known(s)) return "–";
  if (s < 0) return "-" + seconds(-s); // of two clocks
  if (s < 0.0009995) return (s * 1e6).toFixed(0) + " µs"; // what would be rounded to the next unit is in that one
  if (s < 0.9995) return (s * 1e3).toFixed(s < 0.00995 ? 1 : 0) + " ms";
  if (s < 59.95) return s.toFixed(s < 9.995 ? 2 : 1) + " s";
  s = Math.round(s);
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

// ago says how long before now a time was, both in seconds.
export function ago(time, now = atStore()) {
  if (!time) return "–";
  const s = now - time;
  if (s < 1) return "just now";
  if (s < 60) return Math.floor(s) + " s ago";
  if (s < 3600) return Math.floor(s / 60) + " min ago";
  if (s < 86400) return Math.floor(s / 3600) + " h ago";
  return Math.floor(s / 86400) + " d ago";
}

// until says how long after now a time is, or before now it was.
export function until(time, now = atStore()) {
  return time - now < 1 ? ago(time, now) : "in " + ago(2 * now - time, now).replace(/ ago$/, "");
}

// silent says for how long a running run was not heard from, if that is long: a process that was killed could not end its run.
export function silent(run, now = atStore()) {
  const s = now - run.update_time;
  return run.status === "running" && s >= 600 ? "not heard from for " + ago(run.update_time, now).replace(/ ago$/, "") : "";
}

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

// dateTime shows a time in seconds in the reader's zone.
export const dateTime = (time) => (time ? clock.format(new Date(time * 1000)) : "–");

const grouped = new Intl.NumberFormat();
export const count = (n) => (known(n) ? grouped.format(n) : "–");

export const plural = (n, noun) => count(n) + " " + noun + (n === 1 ? "" : "s");

const measured = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });

// number shows a measurement with up to four significant digits. Those that are neither huge nor tiny are written as the reader's language does: 1.234 is
// a thousand in some.
export function number(x) {
  if (!known(x)) return "–";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e15) return grouped.format(x);
  return size >= 1e-6 && size < 1e15 ? measured.format(x) : Number(x.toPrecision(4)).toString();
}

// ticks are the numbers of an axis, which are step apart, with the decimals that tell them from each other.
export function ticks(numbers, step) {
  const size = Math.max(...numbers.map(Math.abs));
  if (size < 1e-6 || size >= 1e15) return numbers.map(number);
  const { format } = new Intl.NumberFormat(undefined, { maximumFractionDigits: Math.min(20, Math.max(0, 1 + Math.ceil(-Math.log10(step)))) });
  return numbers.map(format);
}

// oneLine is the beginning of a value, for a table's cell.
export function oneLine(value, most = 160) {
  let text = typeof value === "string" ? value : JSON.stringify(value);
  if (text === undefined) return "";
  const cut = text.length > most;
  text = visible(text.slice(0, most).replace(/\s+/g, " "));
  return cut ? text + "…" : text;
}

// Characters that are not seen but change how others are shown: controls, zero-width
// ones, and those that turn the direction of text.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// Where a joiner is spelling: between the parts of an emoji, and in words of the scripts whose letters join.
const emoji = { before: /\p{Extended_Pictographic}\ufe0f?$|\p{Emoji_Modifier}$/u, after: /^\p{Extended_Pictographic}/u };
const cursive = /[\p{sc=Arab}\p{sc=Syrc}\p{sc=Mong}\p{sc=Nkoo}]/u;
const brahmic = /[\p{sc=Deva}\p{sc=Beng}\p{sc=Guru}\p{sc=Gujr}\p{sc=Orya}\p{sc=Taml}\p{sc=Telu}\p{sc=Knda}\p{sc=Mlym}\p{sc=Sinh}\p{sc=Khmr}\p{sc=Mymr}]/u;

function spelled(c, text, at) {
  if (c !== "\u200c" && c !== "\u200d") return false;
  const before = text.slice(Math.max(0, at - 3), at);
  const after = text.slice(at + 1, at + 3);
  if (c === "\u200d" && emoji.before.test(before) && emoji.after.test(after)) return true;
  return [cursive, brahmic].some((script) => script.test(before.slice(-1)) && script.test(after.slice(0, 1)));
}

// visible replaces hidden characters by their numbers, so that a text cannot pass for
// another one.
export function visible(text) {
  return String(text).replace(hidden, (c, at, all) => (c === "\r" ? "␍" : spelled(c, all, at) ? c : "⟨" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩"));
}
