// The template tag of every component.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
