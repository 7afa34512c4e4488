package process

import (
	"crypto/rand"
	"os/exec"
)

// Start starts a process that is no agent, the leader of a group (see procgroup), so that it ends with this one, as agents do,
// and the orphans that it leaves are known from theirs. sweep ends these orphans; it is called once the process has been waited for.
func (r *Reaper) Start(cmd *exec.Cmd) (sweep func(), err error) {
	mark := rand.Text()
	cmd.Env = append(cmd.Environ(), markVariable+"="+mark)
	if err := r.start(cmd, mark); err != nil {
		return nil, err
	}
	return func() { r.sweep(mark, cmd.Process.Pid) }, nil
}
