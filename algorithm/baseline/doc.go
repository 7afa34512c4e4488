// Package baseline learns nothing: it runs every task of the datasets, logs what the agent did and what an algorithm would
// see of it, and counts. It is the algorithm to try an agent with:
//
//	b, err := baseline.New(baseline.Config{})
//	err = b.Run(ctx, agl.AlgorithmInput{Store: store, Train: tasks, InitialResources: resources})
//	rewards := b.Report().Train.RewardMean
//
// It knows the store and the adapters. It must not know models or how agents run.
package baseline
