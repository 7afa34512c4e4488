// Package baseline learns nothing: it runs every task of the datasets, logs what the agent did and what an algorithm would
// see of it, and counts. It is the algorithm to try an agent with.
//
// It knows the store and the adapters. It must not know models or how agents run.
package baseline
