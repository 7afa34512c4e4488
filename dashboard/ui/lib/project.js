// The projects of a server, each a store of its own with a page like this one.
import { here } from "../api.js";

// project is the name of the store's project, if it is one of several behind this address.
export const project = /[/]p[/]([a-z0-9-]+)[/][^/]*$/.exec(here)?.[1];

// projectPage is the address of the page of a project of this server.
export const projectPage = (name) => new URL(`p/${name}/`, here).href;
