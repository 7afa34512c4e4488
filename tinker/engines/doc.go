// Package engines is the table of the known engines that speak the Tinker protocol, and what each can do: the embedded
// policy, SkyRL, TuFT, Open-RL and Tinker itself.
//
// The protocol leaves much open: which losses there are, how a batch becomes one number, whether a published snapshot
// stays as it is, what happens to a call that is sent twice. Few engines say so themselves. An [Engine] says it; [Find]
// returns the row of a name, and [Assumed] what to expect of an unknown engine. Code that must know what an engine can
// do asks this package instead of comparing names: tinker/client makes up for what an engine lacks, tinker/tinkertest
// imitates it in tests.
//
// The package must not know how to reach an engine, and no engine's code.
package engines
