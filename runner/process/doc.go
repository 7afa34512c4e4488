// Package process runs a program in any language as the agent of a runner: one process for each attempt, or processes
// that serve many ([KeepaliveStdio]). The program needs no library: its environment contains everything, under names
// that SDKs already read.
//
//	agent, err := process.New(process.Config{Command: []string{"python", "agent.py"}, Environ: os.Environ()})
//	defer agent.Close()
//
// A variable names the file in which the program may leave its result; without the file, the last line of standard output
// counts if it is a JSON object with reward, rewards or error. A non-zero exit fails the attempt whatever the result. Both
// output streams are recorded as message spans, long ones without their middle. docs/process-agents.md lists the variables,
// the forms of a result and what ends a process.
//
// When the attempt is cancelled or out of time, SIGTERM goes to the process group and, after the grace period, SIGKILL.
// Nothing of the group survives an attempt; with a [Reaper], nothing that the program has started does. The agent does not
// inherit the tokens and keys of agl's own programs, the variables of execution roles, or AGL_TASK: its credentials are
// valid for its attempt only.
//
// The package must not know the store, the queue or the proxy.
package process
