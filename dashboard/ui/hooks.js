// What components share: data that follows the store, and keys.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { lostSince, onEvent } from "./live.js";
import { signIns } from "./api.js";

const refreshEvery = 500; // ms; a change is seen within a second
export const retryAfter = 2; // seconds until what failed, for a reason that may pass, is loaded again
export const pause = 4; // times what the last load took: a page that is slow to load leaves the store to others

// passing says whether the next try may succeed: whatever the store did not refuse.
export const passing = (error) => !(error.status >= 400 && error.status < 500) || error.status === 429;

const aims = 400; // ms since the last move
let held = 0; // until when the page stays as it is

// A click counts only where the pointer was pressed. So nothing moves while a link or a button is, nor while the pointer comes to one.
const hold = (e) => (held = !e.target.closest?.("main :is(a, button, label)") ? 0 : e.buttons & 1 ? Infinity : performance.now() + aims);
const release = () => setTimeout(() => (held = 0)); // after the click
for (const act of ["pointermove", "pointerdown"]) addEventListener(act, hold, { passive: true });
for (const act of ["pointerup", "pointercancel", "blur"]) addEventListener(act, release, { passive: true });

// still waits until the page may change.
export async function still() {
  while (performance.now() < held) await new Promise((go) => setTimeout(go, 50));
}

const nothing = { data: undefined, error: undefined, loading: true };

// useQuery loads data, and loads it again when a change concerns it. What was loaded
// stays until it is replaced. concerns(event) says which changes matter; a reset
// always does. deps are what load depends on; data of others is never returned. Data that may be older than the change has freshIn: the seconds after which it is not.
export function useQuery(load, deps, concerns = () => false) {
  const of = JSON.stringify([...deps, signIns.value]);
  const asked = useRef(of);
  asked.current = of;
  const [state, setState] = useState({ of, ...nothing });
  const again = useRef(() => {});
  useEffect(() => {
    let current = null;
    let timer = 0;
    let later = 0;
    let next = 0; // when it may be loaded again
    let began = 0; // when the latest load began
    let ended = false;
    let missed = false; // a change while the tab is hidden, or an answer is on its way
    const read = async (abort) => {
      const sent = performance.now();
      try {
        return await load(abort);
      } finally {
        next = Math.max(sent + refreshEvery, performance.now() + pause * (performance.now() - sent));
        await still();
      }
    };
    const run = async () => {
      clearTimeout(timer);
      timer = 0;
      missed = false;
      began = performance.now();
      const mine = new AbortController();
      current?.abort();
      current = mine;
      let freshIn = 0;
      try {
        const data = await read(mine.signal);
        freshIn = data?.freshIn;
        if (current === mine && asked.current === of) setState({ of, data, error: undefined, loading: false });
      } catch (error) {
        if (error.name !== "AbortError" && passing(error)) freshIn = retryAfter;
        if (current === mine && asked.current === of && error.name !== "AbortError") setState((s) => ({ of, data: s.of === of ? s.data : undefined, error, loading: false }));
      } finally {
        if (current === mine) current = null;
        clearTimeout(later);
        if (freshIn > 0) later = setTimeout(soon, 1000 * freshIn);
        if (missed) soon();
      }
    };
    const soon = () => {
      missed = document.hidden || current !== null;
      if (!ended && !timer && !missed) timer = setTimeout(due, Math.max(0, next - performance.now()));
    };
    const due = () => {
      timer = 0;
      missed = document.hidden; // since the timer was set
      if (!missed) run();
    };
    const seen = () => missed && soon();
    document.addEventListener("visibilitychange", seen);
    again.current = run;
    run();
    const off = onEvent((event) => {
      if (event.opened && current && lostSince(began)) run();
      else if (event.kind === "reset" || concerns(event)) soon();
    });
    return () => {
      ended = true;
      off();
      document.removeEventListener("visibilitychange", seen);
      clearTimeout(timer);
      clearTimeout(later);
      current?.abort();
      current = null;
    };
  }, [of]);
  return { ...(state.of === of ? state : nothing), reload: () => again.current() };
}

// emptied is the next value of a field whose value was sent: what the reader has typed meanwhile stays.
export const emptied = (sent) => (now) => (now === sent ? "" : now);

// useKeys calls handlers by the name of the key, unless the reader is typing.
export function useKeys(handlers) {
  const latest = useRef(handlers);
  latest.current = handlers;
  useLayoutEffect(() => { // as soon as the view is seen
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
      if (typing && event.key !== "Escape") return;
      const handler = latest.current[event.key];
      if (!handler) return;
      if (event.key.startsWith("Arrow") && event.target.closest?.(".text")) return; // they scroll it
      if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
      event.preventDefault();
      handler(event);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

// useTick draws a component again every ten seconds: what it says depends on the time.
export function useTick() {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || tick((n) => n + 1), 10_000);
    return () => clearInterval(timer);
  }, []);
}

// useWidth returns a ref and the element's width in pixels, as it changes.
export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

const darkness = matchMedia("(prefers-color-scheme: dark)");

// useDark says whether the system's colours are dark, as they change.
export function useDark() {
  const [dark, setDark] = useState(darkness.matches);
  useEffect(() => {
    const seen = () => setDark(darkness.matches);
    darkness.addEventListener("change", seen);
    return () => darkness.removeEventListener("change", seen);
  }, []);
  return dark;
}
