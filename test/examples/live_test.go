//go:build examples

package examples_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/test/process"
)

// TestLiveTemplate checks that the shop's model learns what its customers like, that every call is answered while the model
// changes, and that a run can be resumed. The model that has only seen demonstrations answers in each of the four tones, so it
// pleases one customer in four; one that learns pleases nine in ten, with a hundred now and then that is well below.
func TestLiveTemplate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(process.Dir(t), "shop")
	if out, err := exec.CommandContext(t.Context(), program, "init", dir, "--template", "live").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "live.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ports [3]string // of the proxy, the store and the shop
	for i := range ports {
		ports[i] = strconv.Itoa(process.FreePort(t))
	}
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(":4748"), []byte(":"+ports[0])), []byte(":4747"), []byte(":"+ports[1]))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "OPENAI_BASE_URL=http://127.0.0.1:"+ports[0]+"/v1", "SHOP_PORT="+ports[2])
	background(t, dir, env, "python3", "shop.py")
	stop := background(t, dir, env, program, "train", "live.yaml")
	metrics := func() []string {
		text, err := os.ReadFile(filepath.Join(dir, "runs", "live", "metrics.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.Collect(strings.Lines(string(text)))
	}
	first := customers(t, dir, env, 700)
	stop()
	before := metrics()
	stop = background(t, dir, env, program, "train", "--resume", filepath.Join("runs", "live"))
	second := customers(t, dir, env, 300)
	stop()
	t.Logf("pleased: %v, and after the restart %v", first, second)
	for _, pleased := range [][]int{first, second} {
		sum := 0
		for _, n := range pleased {
			sum += n
		}
		if sum < 50*len(pleased) {
			t.Errorf("%v customers of each hundred were pleased, want at least half of all: twice as many as before the model learned", pleased)
		}
	}
	if told, steps := len(before), len(metrics()); told == 0 || steps <= told {
		t.Errorf("the run had the metrics of %d steps when it was stopped, and %d when it was stopped again", told, steps)
	}
	if t.Failed() {
		t.Logf("its metrics:\n%s", strings.Join(metrics(), ""))
	}
}

// TestShopKeepsRatings checks that a rating can be given again that the proxy could not store, and also after the
// session has ended, and that the others hurt nobody.
func TestShopKeepsRatings(t *testing.T) {
	t.Parallel()
	var ratings, chats atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if chats.Load() == 0 {
			w.Header().Set("Agl-Rollout", "ro-1")
		}
		if strings.HasSuffix(r.URL.Path, "/reward") && ratings.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/end") {
			w.WriteHeader(http.StatusGone)
			return
		}
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"yes."}}]}`)
	}))
	t.Cleanup(web.Close)
	port := strconv.Itoa(process.FreePort(t))
	background(t, "../../cmd/agl/templates/live", append(os.Environ(), "OPENAI_BASE_URL="+web.URL+"/v1", "SHOP_PORT="+port), "python3", "shop.py")
	post := func(path, body string) (int, map[string]string) {
		for {
			answer, err := http.Post("http://127.0.0.1:"+port+path, "application/json", strings.NewReader(body))
			if errors.Is(err, syscall.ECONNREFUSED) {
				continue // it starts
			}
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			var said map[string]string
			if err := json.UnmarshalRead(answer.Body, &said); err != nil {
				t.Fatal(err)
			}
			return answer.StatusCode, said
		}
	}
	_, chat := post("/chat", `{"customer":"ada","question":"is it in stock?"}`)
	chats.Add(1)
	_, unrecorded := post("/chat", `{"customer":"ada","question":"is it in stock?"}`)
	for i, want := range []int{http.StatusBadGateway, http.StatusOK, http.StatusOK} {
		if status, said := post("/rate", `{"chat":"`+chat["chat"]+`","pleased":true}`); status != want {
			t.Errorf("rating %d: %d %v, want %d", i, status, said, want)
		}
	}
	if status, said := post("/rate", `{"chat":"`+unrecorded["chat"]+`","pleased":true}`); status != http.StatusOK {
		t.Errorf("rating of a chat without a session: %d %v", status, said)
	}
	if ratings.Load() != 2 {
		t.Errorf("%d ratings came to the proxy, want 2", ratings.Load())
	}
}

// customers returns how many of each hundred were pleased.
func customers(t *testing.T, dir string, env []string, sessions int) (pleased []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "customers.py", strconv.Itoa(sessions))
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for said := range strings.Lines(string(out)) {
		if _, rest, ok := strings.Cut(said, "is liked:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatalf("%v in %q", err, said)
			}
			pleased = append(pleased, n)
		}
	}
	if len(pleased) != sessions/100 {
		t.Fatalf("the customers have told %d times:\n%s", len(pleased), out)
	}
	return pleased
}

// background starts a program. stop interrupts it, and so does the end of the test.
func background(t *testing.T, dir string, env []string, name string, args ...string) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Errorf("%s has ended by itself:\n%s", name, log.String())
		}
		_ = cmd.Wait() // it was interrupted
		if t.Failed() {
			t.Logf("%s said:\n%s", name, log.String())
		}
	}
	t.Cleanup(stop)
	return stop
}
