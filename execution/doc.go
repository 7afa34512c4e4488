// Package execution decides where the two sides of a training run live: in one
// process ([SharedMemory]), or in several that meet at a store server
// ([ClientServer]). A strategy starts the sides, watches them, and ends them in
// an order that loses no finished rollout and leaves no process behind.
//
// What all strategies share: the algorithm's end closes the queue, and the
// runners finish what they have and leave. Runners that end first do not stop
// the algorithm, which may still be processing what they did. The first failure
// or interrupt on either side stops both. What does not answer is forced after
// its timeout, and the error says so.
//
// The package starts and stops plain functions and processes. It must not know
// what an algorithm, an agent or a runner loop does.
package execution
