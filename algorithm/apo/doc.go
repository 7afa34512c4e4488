// Package apo tunes prompt templates with textual gradients and a beam search: ProTeGi, Pryzant et al. 2023, "Automatic
// Prompt Optimization with 'Gradient Descent' and Beam Search" (arXiv:2305.03495).
//
// # A round
//
// Each of Config.BeamWidth parents is edited Config.BranchFactor times. The parents are the beam; a shorter beam is repeated
// from its head. For an edit, the parent runs a few training tasks, a model reads what happened and criticises one prompt
// template of the bundle (the textual gradient), and a model rewrites the template to answer the critique. The template, the
// kind of critique and the kind of edit are drawn by the seed. An edit whose placeholders are not those of the template is
// refused and requested again. The beam and its edits then run the same validation tasks with the same seeds, and the best
// Config.BeamWidth are the next beam.
//
// # What is reported
//
// The leader of each round runs the whole validation dataset and replaces the best so far when a paired bootstrap interval
// of its gain (Efron & Tibshirani 1993, An Introduction to the Bootstrap, §13.3) lies above 0. When the interval contains 0,
// a tie, the shorter prompts stay; only a gain replaces the seed.
//
// A candidate that was selected for its high score was, on average, also lucky. So at the end the best and the seed run the
// validation dataset once more: no choice was based on these fresh rollouts, and the reported gain and its interval come
// from them alone. When that interval contains 0, the report says that no edit helps, and the best is the seed. The interval
// holds for tasks like those of the dataset, not for others.
//
// Rollouts that failed through no fault of the agent (algorithm.Mask) count in no score, only in the report.
//
// # Repeating and resuming
//
// Every draw is a function of Config.Seed and its place in the search, and every result of a model call or of a batch of
// rollouts is journalled under its place once it is complete. A resumed run repeats the search from its beginning and takes
// the results that exist from the journal. So it ends like a run that was not interrupted, if models and agents are
// repeatable; if they are not, it is still one valid run. With a budget, timing may decide which calls are made before it is
// spent.
//
// # Scope
//
// The package knows the store, spans and the text of prompts. It must not know how
// agents run, how they fill in a template, or which company serves a [Model].
package apo
