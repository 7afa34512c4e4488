package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper finds what agents have started and left behind, even where it has
// changed its process group and its environment: it makes this process the one
// to which such orphans fall (a child subreaper, prctl(2)). It also lets agents
// die with this process, however that ends. There can be one in a program, which
// must start all of its processes through agents: others are taken for orphans.
type Reaper struct {
	jobs chan func()
	done chan struct{}

	mu      sync.Mutex
	own     map[int]string // the marks of the processes that were started here, by pid
	running map[string]bool
	// strays are orphans without a mark, each with the processes that may have
	// started it: those that were there when it was found.
	strays map[int]map[string]bool
}

// NewReaper makes this process a subreaper. Close it after its agents.
func NewReaper() (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a child subreaper: %w", err)
	}
	r := &Reaper{
		jobs: make(chan func()), done: make(chan struct{}),
		own: map[int]string{}, running: map[string]bool{}, strays: map[int]map[string]bool{},
	}
	go func() {
		defer close(r.done)
		// The death signal is sent when the thread ends that started the child, so
		// that thread must be as old as this process gets.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range r.jobs {
			job()
		}
	}()
	return r, nil
}

// Close ends the reaper; its agents must be closed.
func (r *Reaper) Close() error {
	close(r.jobs)
	<-r.done
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("be no child subreaper any more: %w", err)
	}
	return nil
}

// start starts a process and takes note of it.
func (r *Reaper) start(cmd *exec.Cmd, mark string) error {
	if r == nil {
		return cmd.Start()
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	r.jobs <- func() {
		// A sweep must not see the process before it is known.
		r.mu.Lock()
		defer r.mu.Unlock()
		err := cmd.Start()
		if err == nil {
			r.own[cmd.Process.Pid] = mark
			r.running[mark] = true
		}
		started <- err
	}
	return <-started
}

// waited forgets a process that has been waited for.
func (r *Reaper) waited(pid int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.own, pid)
}

// sweepTime bounds how long a sweep waits for orphans to die.
const sweepTime = 2 * time.Second

// sweep ends what the process of that mark, which is gone, has left behind, and
// returns how many processes that were.
func (r *Reaper) sweep(mark string) int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	delete(r.running, mark)
	r.mu.Unlock()
	killed := map[int]bool{}
	for deadline := time.Now().Add(sweepTime); time.Now().Before(deadline); {
		left := r.pass(mark, killed)
		if left == 0 {
			break
		}
		// The end of one orphan may bring others.
		time.Sleep(time.Millisecond)
	}
	return len(killed)
}

// pass kills the orphans that belong to the mark, reaps all that are dead and
// returns how many of the former are left.
func (r *Reaper) pass(mark string, killed map[int]bool) (left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := children()
	for pid := range r.strays {
		if !here[pid] {
			delete(r.strays, pid)
		}
	}
	for pid := range here {
		if _, own := r.own[pid]; own {
			continue
		}
		if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
			continue
		}
		if r.belongs(pid, mark) {
			left++
			killed[pid] = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // it is our child: the number is its own until it is reaped
		}
	}
	return left
}

// belongs reports whether an orphan is to be ended with the process of the mark.
func (r *Reaper) belongs(pid int, mark string) bool {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err == nil {
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if m, ok := strings.CutPrefix(string(v), markVariable+"="); ok {
				return m == mark
			}
		}
	}
	suspects := r.strays[pid]
	if suspects == nil {
		suspects = map[string]bool{mark: true}
		for other := range r.running {
			suspects[other] = true
		}
		r.strays[pid] = suspects
	}
	delete(suspects, mark)
	return len(suspects) == 0
}

// children returns the processes whose parent is this one.
func children() map[int]bool {
	out := map[int]bool{}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return out
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended; its children are in another's list
		}
		for field := range bytes.FieldsSeq(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				out[pid] = true
			}
		}
	}
	return out
}
