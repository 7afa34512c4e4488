// Package client is an agl.Store that calls a store's server over HTTP: that of package
// rest/server, or Agent-lightning's own.
//
//	store, err := client.New(client.Config{URL: "http://127.0.0.1:4747"})
//
// [Client] has the methods and the errors of any other store. It repeats operations that are safe to repeat while the server
// is unreachable, so that a restart of the server is only a delay. A long dequeue or wait takes several requests.
//
// The package must not know which store is behind the server, nor who calls.
package client
