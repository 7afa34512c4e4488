// Package procgroup ends a child process together with what it has started: the child leads a process group of its own,
// which is killed when the child has ended, or before.
//
// The number of a group is that of its leader. It may belong to another process
// once the leader has been reaped, so a group is signalled only until then.
package procgroup

import (
	"os"
	"os/exec"
	"sync"
	"time"
)

// Group is a child process and its process group.
type Group struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when Wait has waited

	mu     sync.Mutex
	closed bool // no signals any more
}

// New makes the process of cmd, which has not been started, the leader of a new group.
func New(cmd *exec.Cmd) *Group {
	setLeader(cmd)
	return &Group{cmd: cmd, gone: make(chan struct{})}
}

// Wait returns what cmd.Wait does, once the leader has ended and what was left of
// its group has been killed. It is called once, and instead of cmd.Wait.
func (g *Group) Wait() error {
	defer close(g.gone)
	if awaitExit(g.cmd.Process) {
		g.close()
		return g.cmd.Wait()
	}
	err := g.cmd.Wait()
	g.close()
	return err
}

// Gone is closed when Wait has waited.
func (g *Group) Gone() <-chan struct{} { return g.gone }

// close sends the last signal to the group.
func (g *Group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	kill(g.cmd.Process)
	g.closed = true
}

// Kill kills every process of the group, unless its leader has been waited for.
func (g *Group) Kill() { g.signal(kill) }

// Terminate asks every process of the group to end, unless its leader has been
// waited for. Where there are no groups, it kills the leader.
func (g *Group) Terminate() { g.signal(terminate) }

// End terminates the group, kills it if its leader has not ended within a grace period, and returns when another
// goroutine's Wait does.
func (g *Group) End(grace time.Duration) {
	g.Terminate()
	select {
	case <-g.gone:
	case <-time.After(grace):
		g.Kill()
		<-g.gone
	}
}

func (g *Group) signal(send func(leader *os.Process)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		send(g.cmd.Process)
	}
}
