//go:build !unix

package execution

import (
	"os"

	"github.com/agl-go/agl"
)

func killOwnGroup() { os.Exit(1) }

func exitCode(state *os.ProcessState) int { return state.ExitCode() }

func openLifeline(int) (*os.File, error) {
	return nil, agl.Errorf(agl.CodeUnimplemented, "execution: runner processes need a Unix system")
}
