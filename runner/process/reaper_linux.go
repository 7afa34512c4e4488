package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
// must start all of its processes through agents: others may be taken for
// orphans.
type Reaper struct {
	jobs chan func()
	done chan struct{}

	mu      sync.Mutex
	running map[string]bool // the marks of processes that were started here and not swept up after
	// strays are orphans without a mark, each with the processes that may have
	// started it: those that were there when it was found.
	strays map[int]map[string]bool
}

// NewReaper makes this process a subreaper. Close it after its agents. On systems
// other than Linux it returns nil, which is a Reaper that finds nothing.
func NewReaper() (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a child subreaper: %w", err)
	}
	r := &Reaper{jobs: make(chan func()), done: make(chan struct{}), running: map[string]bool{}, strays: map[int]map[string]bool{}}
	go r.serve()
	return r, nil
}

// serve starts processes until the reaper is closed. All come from one thread,
// for two reasons: the death signal is sent when the thread ends that started the
// child, so that thread must be as old as this process gets; and the children of
// a thread are listed with it, so that with a thread other than the first, to
// which orphans fall, there is no mistaking them.
func (r *Reaper) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// As long as this goroutine is locked to the first thread, no other gets it.
		go r.serve()
		<-r.done
		return
	}
	defer close(r.done)
	for job := range r.jobs {
		job()
	}
}

// Close ends the reaper; its agents must be closed.
func (r *Reaper) Close() error {
	if r == nil {
		return nil
	}
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
	// What it leaves behind may be found before the start has returned.
	r.note(mark, true)
	started := make(chan error, 1)
	r.jobs <- func() { started <- cmd.Start() }
	err := <-started
	if err != nil {
		r.note(mark, false)
	}
	return err
}

// note takes note of whether the process of a mark is there.
func (r *Reaper) note(mark string, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if running {
		r.running[mark] = true
	} else {
		delete(r.running, mark)
	}
}

// sweepTime bounds how long a sweep waits for orphans to die: on a machine with
// much else to do, one that has been killed may wait long for the processor.
const sweepTime = 10 * time.Second

// sweep ends what the process of that mark, which is gone, has left behind, and
// returns how many processes that were.
func (r *Reaper) sweep(mark string) int {
	if r == nil {
		return 0
	}
	r.note(mark, false)
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

// pass kills the orphans that belong to the mark and reaps all that are dead.
// When it returns 0 there was neither, nor one of which that cannot be said yet.
func (r *Reaper) pass(mark string, killed map[int]bool) (left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := orphans()
	for pid := range r.strays {
		if !slices.Contains(here, pid) {
			delete(r.strays, pid)
		}
	}
	for _, pid := range here {
		if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
			left++ // what it has left to us may have come after the list was read
			continue
		}
		if starting(pid) {
			left++ // whose it is can be read when it has become its new program
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

// starting reports whether a process is amid an execve(2): it has no arguments
// then and, as those of no environment, no mark.
func starting(pid int) bool {
	arguments, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(arguments) == 0
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

// orphans returns the processes that have fallen to this one. Linux hands them to
// the first thread that is not about to end (find_new_reaper in its
// kernel/exit.c), and Go lets a program's first thread live as long as the
// program.
func orphans() []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", unix.Getpid()))
	if err != nil {
		return nil // a kernel without such lists: process groups have to do
	}
	var out []int
	for field := range bytes.FieldsSeq(data) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
