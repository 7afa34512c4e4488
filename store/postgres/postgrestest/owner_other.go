//go:build !unix

package postgrestest

import (
	"os"
	"os/exec"
)

// immediate makes a server end at once.
var immediate = os.Kill

// owner is the user who runs the server: here always the user of this process.
type owner struct{}

func unprivileged() (owner, error) { return owner{}, nil }

func (owner) own(...string) error { return nil }

func (owner) become(*exec.Cmd) {}
