// Package apo tunes prompt templates with textual gradients and a beam search:
// ProTeGi, Pryzant et al. 2023, "Automatic Prompt Optimization with 'Gradient
// Descent' and Beam Search" (arXiv:2305.03495).
//
// # A round
//
// Each of Config.BeamWidth parents (the beam, gone through again from its head
// when it holds fewer) is edited Config.BranchFactor times. For an edit, the
// parent runs a few training tasks, a model reads what happened and criticises one
// prompt template of the bundle, the textual gradient, and a model rewrites the
// template with the critique in mind. The template, the kind of critique and the
// kind of edit are drawn by the seed. An edit whose placeholders are not those of
// the template is refused and asked for again. The beam and its edits then run the
// same validation tasks with the same seeds, and the best Config.BeamWidth are the
// next beam.
//
// # What is reported
//
// The leader of each round runs the whole validation dataset and takes the place
// of the best so far when a paired bootstrap interval of its gain (Efron &
// Tibshirani 1993, An Introduction to the Bootstrap, §13.3) lies above 0. When it
// holds 0, a tie, the shorter prompts stay; nothing but a gain displaces the seed.
//
// What was selected because it scored well has, in the mean, been lucky. So in the
// end the best and the seed run the validation dataset once more: these fresh
// rollouts took part in no choice, and the gain reported, with its interval, is
// theirs alone. When that interval holds 0, no edit is reported to help and the
// best is the seed. The interval speaks of tasks such as those of the dataset;
// whether they stand for those to come is the dataset's affair.
//
// Rollouts that failed for reasons around the agent (algorithm.Mask) count in no
// score, only in the report.
//
// # Repeating and resuming
//
// Every draw is a function of Config.Seed and its place in the search, and every
// result of a model call or of a batch of rollouts is journalled under its place
// once it is complete. A run that goes on goes through the search again from its
// beginning and takes from the journal what is there, so it ends as one that was
// not interrupted does, if models and agents are repeatable; where they are not,
// it is still one valid run. With a budget, which calls came before its end may
// depend on timing.
//
// # Scope
//
// The package knows the store, spans and the text of prompts. It must not know how
// agents run, how they fill in a template, or which company serves a [Model].
package apo
