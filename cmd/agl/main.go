// Command agl trains agents from a run file, serves the store and the LLM proxy,
// runs agents, shows what a store holds and maintains its database.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/terminal"
)

// exitUsage is the exit code of a wrong command line; the others are those of execution.ExitCode.
const exitUsage = 2

func main() {
	hideSecrets()
	// Garbage is collected before a container's memory ends. Where its limit cannot be read, there is none to respect.
	_, _ = memlimit.Set()
	code := make(chan int)
	go func() { code <- mainCode(os.Args[1:], os.Stdout, os.Stderr) }()
	os.Exit(<-code)
}

// mainCode runs the program and returns its exit code.
func mainCode(args []string, stdout, stderr io.Writer) int {
	ctx, stop := execution.NotifyContext(context.Background())
	defer stop()
	m := &Main{Stdout: stdout, Stderr: stderr}
	if err := m.ParseFlags(args); err != nil {
		if help, ok := errors.AsType[*helpShownError](err); ok {
			if help.err != nil {
				printError(stderr, help.err)
			}
			return help.code
		}
		printError(stderr, err)
		return exitUsage
	}
	err := m.Run(ctx)
	m.Close()
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause // the interrupt came before the command could name it
	}
	if _, interrupted := errors.AsType[*execution.InterruptError](err); err != nil && !interrupted {
		printError(stderr, err)
	}
	return execution.ExitCode(err)
}

// printError writes the one message of a failed run. If standard error is closed, only the exit code reports the failure.
func printError(stderr io.Writer, err error) {
	_, _ = fmt.Fprintln(stderr, terminal.Safe("agl: "+err.Error()))
}
