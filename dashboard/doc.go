// Package dashboard is the web page of a store: what runs, what it did, and why it
// failed. [New] returns a handler for the paths outside /v1; the page then reads the
// API below v1/agl, relative to its own address, so it works behind any path prefix.
//
// The page is a set of ES modules under ui/, without a build step. Its libraries are in ui/vendor, unchanged;
// ui/vendor/README.md names their versions. The page needs no network but the store's own.
//
// The package must not know the store: the page reads everything over HTTP, with the key that its reader enters.
package dashboard
