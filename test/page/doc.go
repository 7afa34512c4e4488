// Package page tests the dashboard in a real browser, over a real store with the data
// of a real run. make page installs what it needs.
package page
