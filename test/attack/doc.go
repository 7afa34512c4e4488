// Package attack sends hostile requests to the real agl command: to the store, the gateway, the dashboard, the proxy with its
// admin routes, and the policy server. Each server must answer with a clear 4xx, in bounded memory, and be alive and correct
// afterwards.
package attack
