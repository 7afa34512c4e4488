// Package algorithm holds what the algorithms in the packages below it share: running a batch of rollouts through the store
// and reading them back ([Rollouts]), turning a rollout into a score or a typed reason to leave it out ([Episode.Score]),
// measuring a pass rate ([Evaluate]), and keeping checkpoints ([Checkpoints]).
//
// A [Session] joins these for one run. It owns the name of the run, its folder and the model in training:
//
//	s, err := algorithm.OpenSession(ctx, algorithm.SessionParams{Algorithm: "mine", Input: in, RunConfig: run, Training: training, Steps: steps})
//	err = s.Begin(ctx, validated)                   // publishes the first weights
//	for step := s.Step + 1; step <= steps; step++ { // a run that resumes begins after its checkpoint
//		for group, err := range s.Rollouts(ctx, step, s.Params(rollouts, 8)) {
//			…                                       // learn from group.Episodes with s.Model
//		}
//		err = s.Publish(ctx, step)
//		s.Step = step
//		err = s.Commit(ctx, true, line)             // the line of metrics.jsonl and a checkpoint
//	}
//	err = s.Close(ctx)
//
// The package knows the store, spans and the training protocol. It must not know any learning rule, how agents run, or what
// serves the model.
package algorithm
