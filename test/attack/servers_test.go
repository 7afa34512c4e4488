//go:build unix

package attack

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/test/process"
)

var binary string

func TestMain(m *testing.M) {
	if os.Getenv(envAgent) != "" {
		os.Exit(agent())
	}
	os.Exit(process.Main(m, &binary))
}

const (
	// longest bounds every wait. It is reached only by a failure.
	longest = 40 * time.Second
	// most is the most memory, in bytes, that a server may use under attack.
	most = 900 << 20
	// token is every server's.
	token = "attack-token-of-the-root"
)

// target is a server that is attacked.
type target struct {
	*testing.T

	name    string
	address string
	base    string // before the paths of the API, such as those of a project
	process *os.Process
	log     string
	posts   []string // paths that read a body, with what is needed to reach the decoder
	gets    []string
	header  string // credentials, as lines of a request's header
	from    net.IP // the address that requests come from; nil is any
	probe   func(t *target) error
	exited  chan struct{}
}

// targets starts one of each server.
func targets(t *testing.T) []*target {
	t.Helper()
	dir := t.TempDir()
	model := proxytest.NewServer(proxytest.VLLM(func(string, int) string { return "hi" }))
	t.Cleanup(model.Close)
	store := start(t, "store", dir, []string{"store", "--port", "0", "--gateway", "--db", "sqlite:" + filepath.Join(dir, "agl.db")}, "AGL_TOKEN="+token)
	store.posts = []string{
		"/v1/agl/rollouts", "/v1/agl/queues/rollouts/enqueue", "/v1/traces", "/v1/metrics", "/v1/agl/queues/rollouts/dequeue", "/v1/agl/spans", "/v1/agl/spans/batch",
		"/v1/agl/resources", "/v1/agl/rollouts/search", "/v1/agl/workers/w", "/v1/agl/spans/next/batch", "/v1/agl/rollouts/ro-x/attempts/at-x",
	}
	store.gets = []string{"/", "/v1/agl/rollouts", "/v1/agl/spans", "/v1/agl/resources", "/v1/agl/workers", "/metrics"}
	store.probe = probeStore
	gateway := *store
	gateway.name = "gateway"
	gateway.posts = []string{"/api/rollouts", "/api/resources", "/api/rollouts/x/traces"}
	gateway.gets = []string{"/api/rollouts", "/api/controllers"}

	config := filepath.Join(dir, "proxy.yaml")
	yaml := fmt.Sprintf("token: env:AGL_TOKEN\nkey_secret: env:AGL_TOKEN\nstore: http://%s\nmodels:\n  - {name: m, base_url: %q}\n", store.address, model.BaseURL())
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := start(t, "proxy", dir, []string{"proxy", "--port", "0", "--config", config}, "AGL_TOKEN="+token)
	proxy.posts = []string{
		"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/messages/count_tokens",
		"/admin/flush", "/admin/attempts/key", "/admin/attempts/cancel",
	}
	proxy.gets = []string{"/v1/models", "/metrics", "/admin/backends"}
	proxy.probe = probeProxy

	policy := start(t, "policy", dir, []string{"policy", "serve", "--port", "0", "--characters", "abc ", "--context", "32", "--dim", "64"}, "TINKER_API_KEY="+token)
	policy.posts = []string{"/api/v1/create_session", "/api/v1/create_model", "/api/v1/forward_backward", "/api/v1/asample", "/api/v1/retrieve_future", "/v1/chat/completions"}
	policy.gets = []string{"/api/v1/get_server_capabilities", "/v1/models"}
	policy.probe = func(t *target) error { return t.expect(http.MethodGet, "/v1/models", "", http.StatusOK) }
	return []*target{store, &gateway, proxy, policy, projectTarget(t, dir), servedTarget(t, dir)}
}

// projectTarget is one of two projects of a store.
func projectTarget(t *testing.T, dir string) *target {
	t.Helper()
	s := start(t, "projects", dir, []string{"store", "--port", "0", "--projects", filepath.Join(dir, "projects")}, "AGL_TOKEN="+token)
	for _, name := range []string{"one", "other"} {
		if err := s.expect(http.MethodPost, "/v1/agl/projects", fmt.Sprintf(`{"name":%q}`, name), http.StatusCreated); err != nil {
			t.Fatal(err)
		}
	}
	s.base = "/p/one"
	for _, path := range []string{"/v1/agl/rollouts", "/v1/agl/queues/rollouts/enqueue", "/v1/traces", "/v1/agl/queues/rollouts/dequeue", "/v1/agl/keys"} {
		s.posts = append(s.posts, s.base+path)
	}
	s.gets = []string{"/p/one/", "/p/one/v1/agl/rollouts", "/p/one/v1/agl/audit", "/p/", "/p/one", "/p/none/v1/agl/rollouts", "/p/%2e%2e/v1/agl/rollouts", "/p/one%2f..%2fother/v1/agl/rollouts", "/v1/agl/projects"}
	s.probe = probeStore
	return s
}

// envAgent makes the test binary an agent.
const envAgent = "AGL_ATTACK_AGENT"

// agent calls the model once, and reports a reward for the reply.
func agent() (code int) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":4,"messages":[{"role":"user","content":"a"}]}`, os.Getenv("OPENAI_MODEL"))
	res, err := http.Post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 1
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return 1
	}
	fmt.Fprintf(os.Stdout, `{"reward":%d}`, bytes.Count(text, []byte("b")))
	return 0
}

// servedTarget is agl serve with the model of a small run.
func servedTarget(t *testing.T, dir string) *target {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, run := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "run")
	for name, text := range map[string]string{
		filepath.Join(dir, "tasks.jsonl"): "1\n2\n",
		file: fmt.Sprintf(`agent: {command: [%q], env: {%s: "1"}}
data: {train: tasks.jsonl, val: tasks.jsonl}
engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16, context: 32, characters: "abc "}}
algorithm: {grpo: {steps: 1, prompts_per_step: 1, group_size: 4}}
`, self, envAgent),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.CommandContext(t.Context(), binary, "train", file, "--output", run).CombinedOutput(); err != nil {
		t.Fatalf("agl train: %v\n%s", err, said)
	}
	s := start(t, "serve", dir, []string{"serve", run, "--port", "0"}, "AGL_SERVE_API_KEY="+token)
	s.posts = []string{"/v1/chat/completions", "/v1/models", "/v1/none"}
	s.gets = []string{"/v1/models", "/v1/none"}
	s.probe = func(t *target) error {
		return t.expect(http.MethodPost, "/v1/chat/completions", `{"model":"policy","max_tokens":4,"messages":[{"role":"user","content":"a"}]}`, http.StatusOK, "choices")
	}
	return s
}

var listens = regexp.MustCompile(`listens.* url=https?://(\S+)`)

// start starts agl and waits until it serves.
func start(t *testing.T, name, dir string, args []string, env ...string) *target {
	t.Helper()
	s := &target{T: t, name: name, log: filepath.Join(dir, name+".log"), header: "Authorization: Bearer " + token + "\r\n", exited: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = cmd.Process
	write.Close()
	address := make(chan string, 1)
	go func() {
		defer close(s.exited)
		lines := bufio.NewReader(read) // no line is too long for it: a server that cannot write its log stands still
		for {
			line, err := lines.ReadString('\n')
			_, _ = log.WriteString(line) // shown when a test fails
			if found := listens.FindStringSubmatch(line); found != nil {
				address <- found[1]
			}
			if most := 16 << 10; len(line) > most {
				t.Errorf("%s wrote a line of %d bytes, want at most %d: %.300s", name, len(line), most, line)
			}
			if strings.Contains(line, "panic serving") {
				t.Errorf("%s: %s", name, line)
			}
			if err != nil {
				break
			}
		}
		_ = cmd.Wait() // any end is noticed by the tests
		log.Close()
		read.Close()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-s.exited
		if t.Failed() {
			said, _ := os.ReadFile(s.log)
			t.Logf("%s said:\n%.4000s", name, said)
		}
	})
	select {
	case s.address = <-address:
	case <-s.exited:
		t.Fatalf("%s has ended", name)
	case <-time.After(longest):
		t.Fatalf("%s does not serve", name)
	}
	return s
}

// answer is what a server sent.
type answer struct {
	status int
	body   string
}

// send sends bytes over a connection of its own and reads the first answer. An answer of
// status 0 is a connection that the server closed.
func (t *target) send(parts ...io.Reader) (answer, error) {
	got, _, err := t.exchange(parts...)
	return got, err
}

// exchange is send, and also returns the header of the answer.
func (t *target) exchange(parts ...io.Reader) (answer, http.Header, error) {
	dialer := net.Dialer{Timeout: longest}
	if t.from != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: t.from}
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", t.address)
	if err != nil {
		return answer{}, nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(longest)); err != nil {
		return answer{}, nil, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.Copy(conn, io.MultiReader(parts...)) // the server may refuse the rest
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		conn.Close()
		<-written
		if os.IsTimeout(err) {
			return answer{}, nil, fmt.Errorf("no answer: %w", err)
		}
		return answer{}, nil, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	conn.Close()
	<-written
	if err != nil && os.IsTimeout(err) {
		return answer{}, nil, err
	}
	return answer{res.StatusCode, string(body)}, res.Header, nil
}

// request is the bytes of a request with a body of a known length.
func (t *target) request(method, path, header, body string) io.Reader {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s%s", method, path, t.address, t.header, header)
	if method != http.MethodGet {
		if !strings.Contains(header, "Content-Type:") {
			head += "Content-Type: application/json\r\n"
		}
		if !strings.Contains(header, "Content-Length:") && !strings.Contains(header, "Transfer-Encoding:") {
			head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
		}
	}
	return io.MultiReader(strings.NewReader(head+"Connection: close\r\n\r\n"), strings.NewReader(body))
}

// expect sends an ordinary request.
func (t *target) expect(method, path, body string, status int, contains ...string) error {
	got, err := t.send(t.request(method, path, "", body))
	if err != nil {
		return err
	}
	if got.status != status {
		return fmt.Errorf("%s %s: %d %.300s, want %d", method, path, got.status, got.body, status)
	}
	for _, text := range contains {
		if !strings.Contains(got.body, text) {
			return fmt.Errorf("%s %s: %.300s, want %q in it", method, path, got.body, text)
		}
	}
	return nil
}

// probeStore does what a run does, and finds what it has stored.
func probeStore(t *target) error {
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	post := func(path, body string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.address+t.base+"/v1/agl"+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode >= 300 {
			err = fmt.Errorf("POST %s: %s %.300s", path, res.Status, text)
		}
		return string(text), err
	}
	started, err := post("/rollouts", `{"input":{"q":"probe"}}`)
	if err != nil {
		return err
	}
	id := regexp.MustCompile(`"rollout_id":\s*"(ro-[^"]+)"`).FindStringSubmatch(started)
	attempt := regexp.MustCompile(`"attempt_id":\s*"(at-[^"]+)"`).FindStringSubmatch(started)
	if id == nil || attempt == nil {
		return fmt.Errorf("a rollout was started as %.300s", started)
	}
	span := fmt.Sprintf(`{"rollout_id":%q,"attempt_id":%q,"sequence_id":1,"trace_id":"t","span_id":"s","parent_id":null,"name":"probe",`+
		`"status":{"status_code":"OK","description":null},"attributes":{"k":"v"},"events":[],"links":[],"start_time":1,"end_time":2,`+
		`"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""}}`, id[1], attempt[1])
	if _, err := post("/spans", span); err != nil {
		return err
	}
	found, err := post("/spans/search", fmt.Sprintf(`{"rollout_id":%q}`, id[1]))
	if err == nil && !strings.Contains(found, `"probe"`) {
		err = fmt.Errorf("the span is not there: %.300s", found)
	}
	return err
}

// probeProxy calls the model.
func probeProxy(t *target) error {
	return t.expect(http.MethodPost, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, http.StatusOK, `hi`)
}

// alive fails the test if the server has ended, has used too much memory, or does not do its work.
func (t *target) alive(after string) {
	t.Helper()
	select {
	case <-t.exited:
		t.Fatalf("%s: the %s has ended", after, t.name)
	default:
	}
	if err := t.probe(t); err != nil {
		t.Errorf("%s: the %s does not work: %v", after, t.name, err)
	}
	if peak := t.peak(); peak > most {
		t.Errorf("%s: the %s took %d MB, want at most %d", after, t.name, peak>>20, int64(most)>>20)
	} else {
		t.Logf("%s %s: the %s took %d MB at most", time.Now().Format(time.TimeOnly), after, t.name, peak>>20)
	}
}

// peak is the most memory that the process has used, in bytes.
func (t *target) peak() int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.process.Pid))
	if err != nil {
		t.Skipf("memory cannot be measured here: %v", err)
	}
	for line := range bytes.Lines(status) {
		if kib, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(kib)), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no VmHWM in %s", status)
	return 0
}
