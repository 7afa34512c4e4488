//go:build tinkersdk

package tinkersdk

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/agl-go/agl/test/process"
	"github.com/go-json-experiment/json"
)

// aglBinary is the real agl command, built by TestMain.
var aglBinary string

// key is the key of all servers of this suite.
const key = "tml-" + process.Canary

func TestMain(m *testing.M) {
	if err := os.Setenv("TINKER_API_KEY", key); err != nil {
		panic(err)
	}
	os.Exit(process.Main(m, &aglBinary))
}

// server is a running `agl policy serve`.
type server struct {
	url string
	cmd *exec.Cmd
	log chan string // everything that it logged, once it has ended
}

// serve starts a server and waits until it listens.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	return serveAt(t, "0", args...)
}

// serveAt is serve at a port.
func serveAt(t *testing.T, port string, args ...string) *server {
	t.Helper()
	cmd := exec.Command(aglBinary, append([]string{"policy", "serve", "--port=" + port, "--log-format=json"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: cmd, log: make(chan string, 1)}
	lines := bufio.NewReader(stderr)
	first, err := lines.ReadString('\n')
	var said struct {
		URL string `json:"url"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(first), &said)
	}
	if err != nil || said.URL == "" {
		_ = cmd.Process.Kill() // it may have ended
		t.Fatalf("agl policy serve said %q: %v, %v", first, err, cmd.Wait())
	}
	s.url = said.URL
	go func() {
		rest, err := io.ReadAll(lines)
		if err != nil {
			rest = fmt.Appendf(rest, "\nlog: %v", err)
		}
		s.log <- string(rest)
	}()
	t.Cleanup(func() { s.end(t, syscall.SIGTERM) })
	return s
}

// end sends a signal and waits for the process. A server that has ended stays so.
func (s *server) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if s.cmd.ProcessState != nil {
		return
	}
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Error(err)
	}
	log := <-s.log
	process.Silent(t, "the log of the server", []byte(log))
	err := s.cmd.Wait()
	if signal == syscall.SIGKILL {
		return
	}
	if err != nil || strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("agl policy serve: %v\n%s", err, log)
	}
}
