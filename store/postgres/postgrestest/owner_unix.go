//go:build unix

package postgrestest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// immediate makes a server end at once, with its backends, without a checkpoint.
const immediate = syscall.SIGQUIT

// owner is the user who runs the server; the zero value is the user of this process.
type owner struct {
	credential *syscall.Credential
}

// unprivileged picks a user for the server, which refuses to run as root.
func unprivileged() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	var errs error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return owner{}, err
		}
		return owner{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return owner{}, errs
}

// own gives files to the owner.
func (o owner) own(paths ...string) error {
	if o.credential == nil {
		return nil
	}
	var errs error
	for _, path := range paths {
		errs = errors.Join(errs, os.Chown(path, int(o.credential.Uid), int(o.credential.Gid)))
	}
	return errs
}

// become makes a command run as the owner.
func (o owner) become(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = o.credential
}
