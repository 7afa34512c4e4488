package process

import (
	"bytes"
	"fmt"
	"maps"
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

// Reaper finds and ends the processes that agents leave behind, even those that have changed their process group and
// environment: it makes this process the parent of such orphans (a child subreaper, see prctl(2)). It also makes agents end
// with this process, however that ends. A program can have one. A process that the program starts from its first thread may be
// taken for an orphan, so an init function should keep that thread, with runtime.LockOSThread, for a goroutine that starts none.
type Reaper struct {
	jobs chan func()
	done chan struct{}

	mu      sync.Mutex
	running map[string]bool // the marks of processes that have not been swept yet
	// strays are orphans with the marks of the processes that may have started each: its own mark, if it was ever
	// read, or else those of all that were running when it was found.
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

// serve starts processes until the reaper is closed. One thread starts all of them, for two reasons. The death signal is
// sent when the thread ends that started the child, so the thread must live as long as this process. And Linux lists
// children by thread: orphans become children of the first thread, so another thread keeps its children apart from them.
func (r *Reaper) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// This goroutine holds the first thread until Close, so the new one gets another.
		go r.serve()
		<-r.done
		return
	}
	defer close(r.done)
	for job := range r.jobs {
		job()
	}
}

// Close ends the reaper. Its agents must be closed already.
func (r *Reaper) Close() error {
	if r == nil {
		return nil
	}
	close(r.jobs)
	<-r.done
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("stop being a child subreaper: %w", err)
	}
	return nil
}

// start starts a process and records its mark as running.
func (r *Reaper) start(cmd *exec.Cmd, mark string) error {
	if r == nil {
		return cmd.Start()
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	// A sweep may find an orphan of this process before Start has returned.
	r.setRunning(mark, true)
	started := make(chan error, 1)
	r.jobs <- func() { started <- cmd.Start() }
	err := <-started
	if err != nil {
		r.setRunning(mark, false)
	}
	return err
}

// setRunning records whether the process of a mark is running.
func (r *Reaper) setRunning(mark string, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if running {
		r.running[mark] = true
	} else {
		delete(r.running, mark)
	}
}

// sweepTime bounds how long a sweep waits for orphans to die: on a busy machine a
// killed process may wait long for the processor.
const sweepTime = 10 * time.Second

// sweep ends what the process of a mark, which has ended, left behind, and returns how many of these processes had
// left its group. Those in the group were killed with it, but may not be dead yet.
func (r *Reaper) sweep(mark string, group int) int {
	if r == nil {
		return 0
	}
	r.setRunning(mark, false)
	killed := map[int]bool{}
	// Linux may leave a child out of its list if another one ends while the list is read, so it must be empty twice.
	empty := 0
	for deadline := time.Now().Add(sweepTime); empty < 2 && time.Now().Before(deadline); {
		if r.pass(mark, group, killed) == 0 {
			empty++
			continue
		}
		empty = 0
		// The children of an orphan become orphans, too.
		time.Sleep(time.Millisecond)
	}
	return len(killed)
}

// pass kills the orphans that belong to the mark and reaps all that are dead. left counts both, and the orphans whose
// mark is not known yet.
func (r *Reaper) pass(mark string, group int, killed map[int]bool) (left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := orphans()
	maps.DeleteFunc(r.strays, func(pid int, _ map[string]bool) bool { return !slices.Contains(current, pid) })
	for _, pid := range current {
		if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
			left++ // its children may have become ours after the list was read
			continue
		}
		if starting(pid) {
			left++ // its mark can be read once execve is done
			continue
		}
		belongs, known := r.belongs(pid, mark)
		if belongs || !known {
			left++
		}
		if belongs {
			if in, err := unix.Getpgid(pid); err != nil || in != group {
				killed[pid] = true
			}
			_ = syscall.Kill(pid, syscall.SIGKILL) // the pid cannot have been reused: the child has not been reaped
		}
	}
	return left
}

// starting reports whether a process is inside execve(2): until that returns, the process shows neither arguments nor
// an environment, and so no mark.
func starting(pid int) bool {
	arguments, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(arguments) == 0
}

// belongs reports whether an orphan descends from the process of the mark, and whether that is known yet.
func (r *Reaper) belongs(pid int, mark string) (belongs, known bool) {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err == nil {
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if m, ok := strings.CutPrefix(string(v), markVariable+"="); ok {
				r.strays[pid] = map[string]bool{m: true} // it may lose its mark, and nobody else is a suspect then
				return m == mark, true
			}
		}
	}
	suspects, seen := r.strays[pid]
	if !seen {
		suspects = map[string]bool{mark: true}
		for other := range r.running {
			suspects[other] = true
		}
		r.strays[pid] = suspects
		return false, false // an execve may have begun since its arguments were read
	}
	delete(suspects, mark)
	return len(suspects) == 0, true
}

// orphans returns the orphans that have become children of this process. Linux gives them to the first thread that is not
// exiting (find_new_reaper in kernel/exit.c), and the first thread of a Go program lives as long as the program.
func orphans() []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", unix.Getpid()))
	if err != nil {
		return nil // a kernel without such lists: only process groups are ended
	}
	var out []int
	for field := range bytes.FieldsSeq(data) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// unread returns how many bytes of a pipe nobody has read yet.
func unread(pipe *os.File) (n int) {
	conn, err := pipe.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // also called FIONREAD
	}
	if err != nil {
		return 0 // the pipe is closed
	}
	return n
}
