package attack

import (
	"bytes"
	"fmt"
	"io"
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
	secretCanary  = "canary-keysecret-2b77"
)

// leaky is a backend that says the credentials which it gets, in errors and otherwise, as whole
// replies and as streams.
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

// Secrets are in no answer, log, span, event, export or backup: not the token, not those of keys, not
// those of backends that say them.
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
	secrets := map[string]string{
		"the token": rootCanary, "the backend's key": backendCanary, "the key_secret": secretCanary,
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
	for _, s := range []*target{proxy, store} {
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
	if len(seen) < 30 || len(seen["store.log"]) == 0 || len(seen["backup.db"]) == 0 {
		t.Errorf("looked at %d places only", len(seen))
	}
}
