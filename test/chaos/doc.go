// Package chaos kills store servers under load and checks that they have lost nothing. Real processes serve simulated runners and
// algorithms while they, and PostgreSQL, are killed at random moments and started again; everything that the clients saw is
// recorded and judged by package history.
//
// The seed of a run is printed. It decides the operations, but not their timing. A history
// that breaks a rule is kept, and can be judged again:
//
//	go test ./test/chaos -run Replay -history FILE
//
// It has no code of its own.
package chaos
