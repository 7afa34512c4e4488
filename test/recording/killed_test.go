package recording

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/process"
)

// The environment of a proxy in a process of its own, which is this program, started again.
const (
	proxyDir     = "AGL_TEST_PROXY_DIR"
	proxyListen  = "AGL_TEST_PROXY_LISTEN"
	proxyStore   = "AGL_TEST_PROXY_STORE"
	proxyBackend = "AGL_TEST_PROXY_BACKEND"
)

// serveProxy runs that proxy.
func serveProxy(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	spans, err := client.New(client.Config{URL: os.Getenv(proxyStore), RetryTimeout: -1})
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: os.Getenv(proxyBackend)}}, Spans: spans, SpoolDir: dir})
	if err != nil {
		return err
	}
	p.Start(context.WithoutCancel(ctx))
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", os.Getenv(proxyListen))
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "listening", l.Addr())
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return errors.Join(p.Close(context.WithoutCancel(ctx)), spans.Close())
}

// proxyProcess starts a proxy, which listens when it returns.
func proxyProcess(t *testing.T, dir, listen, storeURL, backend string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), proxyDir+"="+dir, proxyListen+"="+listen, proxyStore+"="+storeURL, proxyBackend+"="+backend)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the proxy does not start: %v, %v", err, cmd.Wait())
	}
	return cmd
}

// TestKilledProxy kills the proxy while calls are running, spooled and just ended. The next
// proxy replays the records on disk. If the flush of an attempt succeeds, the store must have
// each of its calls; otherwise the error must say that some are lost.
func TestKilledProxy(t *testing.T) {
	dir := process.Dir(t)
	server := process.Store(t, aglBinary, "store", dir, "--db", "sqlite:"+filepath.Join(dir, "agl.db"))
	model := proxytest.NewServer(backend)
	defer model.Close()
	patient := store(t, server.URL(), longOutage)
	spool := filepath.Join(dir, "spool")
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(process.FreePort(t)))
	cmd := proxyProcess(t, spool, address, server.URL(), model.BaseURL())
	alive := true
	defer func() {
		if alive {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	const agents, rounds = 16, 4
	a := &agent{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: agents}}, proxy: "http://" + address}
	whole, lost := 0, 0
	for round := range rounds {
		if round%2 == 1 {
			server.Kill() // so that there are records on disk when the proxy dies
		}
		attempts := make([]finished, agents)
		var group, calling sync.WaitGroup
		calling.Add(agents / 2)
		if round%2 == 1 {
			server.Start()
		}
		for i := range attempts {
			r, err := patient.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}})
			if err != nil {
				t.Fatal(err)
			}
			attempts[i].rollout = r
		}
		if round%2 == 1 {
			server.Kill()
		}
		for i := range attempts {
			group.Go(func() {
				// The first agents end in time, the others call until there is no proxy.
				reached := func() {}
				if i >= agents/2 {
					reached = sync.OnceFunc(calling.Done)
					defer reached()
				}
				for n := 0; i >= agents/2 || n < 10; n++ {
					if _, err := a.call(t.Context(), attempts[i].rollout, kinds[n%4]); err != nil {
						return
					}
					attempts[i].calls++
					if n == 10 {
						reached()
					}
				}
			})
		}
		calling.Wait()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		group.Wait()
		a.client.CloseIdleConnections()
		if round%2 == 1 {
			server.Start()
		}
		cmd = proxyProcess(t, spool, address, server.URL(), model.BaseURL())
		for _, f := range attempts {
			err := flush(t.Context(), a, f.rollout)
			switch {
			case err == nil:
				whole++
				if err := a.check(t.Context(), patient, f.rollout, f.calls); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			case strings.Contains(err.Error(), "call records could not be stored"):
				lost++
			default:
				t.Errorf("round %d: %v", round, err)
			}
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it tells of the losses once more
	alive = false
	t.Logf("%d attempts whole, %d reported as incomplete", whole, lost)
	if whole == 0 || lost == 0 {
		t.Error("the kills hit all or nothing")
	}
}
