//go:build unix

package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// The planted secrets.
const (
	rootCanary    = "canary-root-7f3a9c"
	backendCanary = "sk-canary-backend-51d2"
	policyCanary  = "canary-policy-c40e"
	secretCanary  = "canary-keysecret-2b77"
)

// leaky is a backend that repeats the credentials that it gets, in errors and in replies, with and
// without a stream.
func leaky(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	said := fmt.Sprintf("Incorrect API key provided: %s", r.Header["Authorization"])
	w.Header().Set("X-You-Sent", said)
	switch {
	case bytes.Contains(body, []byte(`"stream":true`)):
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range len(said) { // in pieces of one byte
			fmt.Fprintf(w, "%c", said[i])
			_ = http.NewResponseController(w).Flush()
		}
	case bytes.Contains(body, []byte("answer")):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, said)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":%q,"code":"invalid_api_key"}}`, said)
	}
}

// Secrets must be in no answer, log, span, event, export or backup: neither the token nor the secrets
// of keys nor those of backends that repeat them.
func TestSecretsStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	backend := httptest.NewServer(http.HandlerFunc(leaky))
	defer backend.Close()
	env := []string{"AGL_TOKEN=" + rootCanary, "BACKEND_KEY=" + backendCanary, "KEY_SECRET=" + secretCanary}
	db := filepath.Join(dir, "agl.db")
	header := "Authorization: Bearer " + rootCanary + "\r\n"
	store := start(t, "store", dir, []string{"store", "--port", "0", "--db", "sqlite:" + db, "--log-level", "debug"}, env...)
	config := filepath.Join(dir, "proxy.yaml")
	yaml := fmt.Sprintf("token: env:AGL_TOKEN\nkey_secret: env:KEY_SECRET\nstore: http://%s\nretry: {attempts: 1}\nmodels:\n  - {name: m, base_url: %q, api_key: env:BACKEND_KEY, pause_url: /pause}\n",
		store.address, backend.URL+"/v1")
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := start(t, "proxy", dir, []string{"proxy", "--port", "0", "--config", config, "--log-level", "debug"}, env...)
	store.header, proxy.header = header, header
	policy := start(t, "policy", dir, []string{"policy", "serve", "--port", "0", "--characters", "abc ", "--context", "32", "--dim", "64", "--store", "http://" + store.address, "--log-level", "debug"},
		"TINKER_API_KEY="+policyCanary, "AGL_TOKEN="+rootCanary)
	secrets := map[string]string{
		"the token": rootCanary, "the backend's key": backendCanary, "the key_secret": secretCanary, "the key of the policy server": policyCanary,
	}
	seen := map[string][]byte{}
	ask := func(name, key, method, url, body string) []byte {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		res, err := (&http.Client{Timeout: longest}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil && !strings.Contains(err.Error(), "EOF") {
			t.Fatal(err)
		}
		var all bytes.Buffer
		_ = res.Header.Write(&all)
		seen[name] = append(append(seen[name], all.Bytes()...), answer...)
		return answer
	}
	storeURL, proxyURL := "http://"+store.address, "http://"+proxy.address
	var made struct {
		Key string `json:"key"`
	}
	created := ask("made", rootCanary, http.MethodPost, storeURL+"/v1/agl/keys", `{"name":"live","scopes":["live"]}`)
	if err := json.Unmarshal(created, &made); err != nil || made.Key == "" {
		t.Fatalf("%s, %v", created, err)
	}
	delete(seen, "made") // the one place where it is shown
	secrets["a key"] = made.Key[strings.LastIndex(made.Key, "_")+1:]
	var begun struct {
		RolloutID string `json:"rollout_id"`
		Attempt   struct {
			AttemptID string `json:"attempt_id"`
		} `json:"attempt"`
	}
	if err := json.Unmarshal(ask("rollout", rootCanary, http.MethodPost, storeURL+"/v1/agl/rollouts", `{"input":{}}`), &begun); err != nil || begun.RolloutID == "" {
		t.Fatalf("%s, %v", seen["rollout"], err)
	}
	var attempt struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(ask("made", rootCanary, http.MethodPost, proxyURL+"/admin/attempts/key", fmt.Sprintf(`{"rollout_id":%q,"attempt_id":%q}`, begun.RolloutID, begun.Attempt.AttemptID)), &attempt); err != nil || attempt.Key == "" {
		t.Fatalf("%s, %v", seen["made"], err)
	}
	delete(seen, "made")
	secrets["the key of an attempt"] = attempt.Key
	base := proxyURL + "/rollout/" + begun.RolloutID + "/attempt/" + begun.Attempt.AttemptID
	for _, path := range []string{"chat/completions", "messages", "responses", "completions", "embeddings"} {
		for _, extra := range []string{"", `,"stream":true`, `,"user":"answer"`} {
			body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hi"}],"input":"hi","prompt":"hi","max_tokens":4%s}`, extra)
			ask("a call to "+path+extra, attempt.Key, http.MethodPost, base+"/v1/"+path, body)
			ask("a key's call", made.Key, http.MethodPost, proxyURL+"/v1/"+path, body)
			ask("a wrong key's call", made.Key+"x", http.MethodPost, proxyURL+"/v1/"+path, body)
		}
	}
	for _, key := range []string{policyCanary, made.Key, made.Key + "x", "none"} {
		for _, path := range []string{"/api/v1/create_session", "/api/v1/create_model", "/api/v1/asample", "/api/v1/retrieve_future", "/api/v1/none", "/v1/chat/completions"} {
			for _, body := range []string{"{}", "{", `{"model":"agl-policy","messages":[{"role":"user","content":"ab"}],"max_tokens":2}`} {
				ask("the policy server", key, http.MethodPost, "http://"+policy.address+path, body)
			}
		}
	}
	ask("pause", rootCanary, http.MethodPost, proxyURL+"/admin/pause", `{"mode":"hold"}`)
	ask("resume", rootCanary, http.MethodPost, proxyURL+"/admin/resume", `{}`)
	for _, path := range []string{"/admin/models", "/admin/backends", "/metrics", "/v1/models"} {
		ask("proxy"+path, rootCanary, http.MethodGet, proxyURL+path, "")
	}
	ask("flush", rootCanary, http.MethodPost, proxyURL+"/admin/flush", "{}")
	for _, path := range []string{
		"/v1/agl/rollouts", "/v1/agl/spans?limit=-1&rollout_id=" + begun.RolloutID, "/v1/agl/keys", "/v1/agl/audit", "/v1/agl/resources", "/v1/agl/workers",
		"/metrics", "/v1/agl/whoami", "/v1/agl/none",
	} {
		ask("store"+path, rootCanary, http.MethodGet, storeURL+path, "")
	}
	if spans := seen["store/v1/agl/spans?limit=-1&rollout_id="+begun.RolloutID]; !bytes.Contains(spans, []byte("Incorrect API key provided")) {
		t.Errorf("no record has what the backend has said: %s", spans)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), env...)
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("agl %v: %v\n%s", args, err, said)
		}
		seen["agl "+args[0]] = append(seen["agl "+args[0]], said...)
	}
	run("export", "-", "--store", storeURL, "--what", "messages", "--all")
	run("key", "list", "--store", storeURL, "--all", "--json")
	run("audit", "--store", storeURL, "--json")
	run("db", "backup", filepath.Join(dir, "backup.db"), "--db", "sqlite:"+db)
	run("db", "export", filepath.Join(dir, "export.jsonl"), "--db", "sqlite:"+db)
	for _, s := range []*target{proxy, policy, store} {
		_ = s.process.Signal(os.Interrupt)
		select {
		case <-s.exited:
		case <-time.After(longest):
			t.Errorf("%s does not end", s.name)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if seen[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for where, text := range seen {
		for what, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				at := bytes.Index(text, []byte(secret))
				t.Errorf("%s has %s: %q", where, what, text[max(0, at-100):min(len(text), at+100)])
			}
		}
	}
	if len(seen) < 30 || len(seen["store.log"]) == 0 || len(seen["policy.log"]) == 0 || len(seen["backup.db"]) == 0 {
		t.Errorf("looked at %d places only", len(seen))
	}
}

// Neither the runner's tokens nor the key in its store's address may be in anything that a run leaves
// behind: logs, spans, files, exports, backups, and the errors and outputs of agents that print their
// environment and end in every way.
func TestRunnerSecretsStay(t *testing.T) {
	t.Parallel()
	const proxyCanary, urlCanary, otherCanary = "canary-proxy-91c0d4", "canary-url-5e6f70", "canary-other-88ab"
	dir := t.TempDir()
	db := filepath.Join(dir, "agl.db")
	seen := map[string][]byte{}
	for _, tt := range []struct {
		name     string
		secret   string // that the store asks for
		user     string // of the address of the store
		env      []string
		variable bool // the address is in AGL_STORE_URL
		flags    []string
		script   string
		status   string
	}{
		{name: "reward", secret: rootCanary, script: `env; env >&2; cat >/dev/null; echo '{"reward": 1}'`, status: "succeeded"},
		{name: "failure", secret: rootCanary, script: `env >&2; echo "$AGL_TOKEN$AGL_PROXY_TOKEN$AGL_DB"; exit 3`, status: "failed"},
		{name: "killed", secret: rootCanary, script: `env; kill -9 $$`, status: "failed"},
		{name: "timeout", secret: rootCanary, flags: []string{"--timeout", "1s", "--grace", "100ms"}, script: `env; exec sleep 60`, status: "timeout"},
		{name: "no result", secret: rootCanary, script: `env > "$AGL_RESULT_FILE"`, status: "failed"},
		{name: "kept files", secret: rootCanary, flags: []string{"--keep", "--workspace"}, script: `env > kept; echo '{"reward": 0}'`, status: "succeeded"},
		{name: "kept process", secret: rootCanary, flags: []string{"--keepalive", "stdio"}, script: `read -r task; echo "$task" >&2; env >&2; exit 4`, status: "failed"},
		{name: "key in the address", secret: urlCanary, user: "agl:" + urlCanary + "@", env: []string{"AGL_TOKEN="}, script: `env; exit 5`, status: "failed"},
		{name: "key in a variable", secret: urlCanary, user: "agl:" + urlCanary + "@", env: []string{"AGL_TOKEN="}, variable: true, script: `env; exit 5`, status: "failed"},
		{
			name: "key in a variable, kept process", secret: urlCanary, user: "agl:" + urlCanary + "@", env: []string{"AGL_TOKEN="}, variable: true,
			flags: []string{"--keepalive", "stdio"}, script: `env >&2; exit 4`, status: "failed",
		},
		{name: "no such program", secret: rootCanary}, // the last: its rollout may stay in the queue
	} {
		home := filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(tt.name))
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		store := start(t, "store-"+filepath.Base(home), dir, []string{"store", "--port", "0", "--db", "sqlite:" + db, "--log-level", "debug"}, "AGL_TOKEN="+tt.secret)
		store.header = "Authorization: Bearer " + tt.secret + "\r\n"
		if err := store.expect(http.MethodPost, "/v1/agl/resources", `{"p":{"resource_type":"prompt_template","template":"x","engine":"f-string"}}`, http.StatusCreated); err != nil {
			t.Fatal(err)
		}
		if err := store.expect(http.MethodPost, "/v1/agl/queues/rollouts/enqueue", `{"rollouts":[{"input":{"q":"x"}}]}`, http.StatusCreated); err != nil {
			t.Fatal(err)
		}
		url, args := "http://"+tt.user+store.address, []string{"runner"}
		if tt.variable {
			tt.env = append(tt.env, "AGL_STORE_URL="+url)
		} else {
			args = append(args, "--store", url)
		}
		args = append(append(args, "--max-rollouts", "1", "--log-level", "debug"), tt.flags...)
		if tt.script == "" {
			args = append(args, "--", filepath.Join(home, "none"))
		} else {
			args = append(args, "--", "/bin/sh", "-c", tt.script)
		}
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		runner := exec.CommandContext(ctx, binary, args...)
		runner.Dir = home
		runner.Env = append(os.Environ(), "TMPDIR="+home, "AGL_TOKEN="+rootCanary, "AGL_PROXY_TOKEN="+proxyCanary, "AGL_PROXY_API_KEY="+otherCanary, "AGL_SERVE_API_KEY="+otherCanary,
			"AGL_OIDC_CLIENT_SECRET="+otherCanary, "AGL_DB=postgres://agl:"+otherCanary+"@db/agl")
		runner.Env = append(runner.Env, tt.env...)
		said, err := runner.CombinedOutput()
		cancel()
		if tt.script != "" && err != nil { // a program that does not exist may end the runner
			t.Errorf("%s: %v\n%s", tt.name, err, said)
		}
		seen["the runner's output, "+tt.name] = said
		var page struct {
			Items []struct {
				RolloutID string `json:"rollout_id"`
				Status    string `json:"status"`
			} `json:"items"`
		}
		rollouts, err := store.send(store.request(http.MethodGet, "/v1/agl/rollouts?sort_by=start_time&sort_order=desc&limit=1", "", ""))
		if err == nil {
			err = json.Unmarshal([]byte(rollouts.body), &page)
		}
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("%s: %+v, %v", tt.name, rollouts, err)
		}
		if tt.script != "" && page.Items[0].Status != tt.status && (tt.status != "timeout" || page.Items[0].Status != "failed") {
			t.Errorf("%s: the rollout is %s, want %s\n%s", tt.name, page.Items[0].Status, tt.status, said)
		}
		id := page.Items[0].RolloutID
		for _, path := range []string{"/v1/agl/rollouts/" + id, "/v1/agl/rollouts/" + id + "/attempts", "/v1/agl/spans?limit=-1&rollout_id=" + id, "/v1/agl/workers", "/v1/agl/audit"} {
			got, err := store.send(store.request(http.MethodGet, path, "", ""))
			if err != nil || got.status != http.StatusOK {
				t.Errorf("%s: %s: %d %.200s, %v", tt.name, path, got.status, got.body, err)
			}
			seen[path+", "+tt.name] = []byte(got.body)
		}
		_ = store.process.Signal(os.Interrupt)
		select {
		case <-store.exited:
		case <-time.After(longest):
			t.Fatalf("%s: the store does not end", tt.name)
		}
	}
	for _, args := range [][]string{
		{"db", "backup", filepath.Join(dir, "backup.db"), "--db", "sqlite:" + db},
		{"db", "export", filepath.Join(dir, "export.jsonl"), "--db", "sqlite:" + db},
	} {
		if said, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
			t.Errorf("agl %v: %v\n%s", args, err, said)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			seen[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	outputs := 0 // places where agents have printed their environment
	for where, text := range seen {
		if bytes.Contains(text, []byte("AGL_RESULT_FILE=")) {
			outputs++
		}
		for what, secret := range map[string]string{"the token": rootCanary, "the proxy's token": proxyCanary, "the key of the address": urlCanary, "another secret": otherCanary} {
			if at := bytes.Index(text, []byte(secret)); at >= 0 {
				t.Errorf("%s has %s: %q", where, what, text[max(0, at-100):min(len(text), at+100)])
			}
		}
	}
	if outputs < 5 {
		t.Errorf("agents have said their environment in %d places only", outputs)
	}
}
