package process

import (
	"bufio"
	"os/exec"
	"testing"
)

// An orphan may be found while its mark cannot be read, show its mark to the last pass of another's sweep, and then lose it: it still is
// an orphan of the process with this mark.
func TestOrphanLosesItsMark(t *testing.T) {
	t.Parallel()
	const own, swept = "own", "swept"
	orphan := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo; read line; exec env -i /bin/sh -c "echo; read line"`)
	orphan.Env = []string{markVariable + "=" + own}
	in, err := orphan.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := orphan.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		_ = orphan.Wait() // it has read nothing
	}()
	lines, pid := bufio.NewReader(out), orphan.Process.Pid
	next := func() {
		t.Helper()
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	next()
	r := &Reaper{running: map[string]bool{own: true}, strays: map[int]map[string]bool{pid: {own: true, swept: true}}}
	if belongs, known := r.belongs(pid, swept); belongs || !known {
		t.Errorf("with a mark: belongs to another %t, known %t", belongs, known)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	next()
	if belongs, known := r.belongs(pid, own); !belongs || !known {
		t.Errorf("without: belongs to its own %t, known %t", belongs, known)
	}
}
