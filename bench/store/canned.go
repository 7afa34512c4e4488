package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// cannedEnv makes the program serve canned replies instead of measuring.
const cannedEnv = "AGL_BENCH_CANNED_ADDRESS"

// startCanned runs this program again as the canned server, so that it is a
// process of its own like the others.
func startCanned(ctx context.Context) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + itoa(port)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), cannedEnv+"="+address)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{urls: []string{"http://" + address}, pid: cmd.Process.Pid, stop: func() time.Duration {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}}
	if err := waitHealthy(ctx, s.urls[0]); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// serveCanned reads each request and answers it with a fixed reply of the size
// and form that a store's has: the least that a net/http server can do.
func serveCanned(address string) error {
	rollout := `{"rollout_id":"ro-000000000000","input":{"question":"12 times 7","index":0},"start_time":1795172350.7193449,"end_time":null,"mode":"train","resources_id":"rs-000000000000","status":"preparing","config":{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_condition":[]},"metadata":{}`
	attempt := `{"rollout_id":"ro-000000000000","attempt_id":"at-00000000","sequence_id":1,"start_time":1795172350.7249382,"end_time":null,"status":"preparing","worker_id":"runner-0","last_heartbeat_time":null,"metadata":null}`
	resources := `{"resources_id":"rs-000000000000","create_time":1.5,"update_time":1.5,"version":1,"resources":` + benchResources + `}`
	span := string(makeSpan(nil, "ro-000000000000", "at-00000000", 1, 0))
	page := `{"items":[` + strings.Repeat(span+",", spansPerRollout-1) + span + `],"limit":-1,"offset":0,"total":8}`
	mux := http.NewServeMux()
	reply := func(pattern string, status int, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	reply("GET /v1/agl/health", http.StatusOK, `{"status":"ok"}`)
	reply("POST /v1/agl/resources", http.StatusCreated, resources)
	reply("GET /v1/agl/resources/{id}", http.StatusOK, resources)
	reply("POST /v1/agl/queues/rollouts/enqueue", http.StatusCreated, "["+rollout+"}]")
	reply("POST /v1/agl/queues/rollouts/dequeue", http.StatusOK, "["+rollout+`,"attempt":`+attempt+"}]")
	reply("POST /v1/agl/spans/next", http.StatusOK, `{"sequence_id":1}`)
	reply("POST /v1/agl/spans", http.StatusCreated, span)
	reply("POST /v1/agl/rollouts/{id}/attempts/{attempt}", http.StatusOK, attempt)
	reply("POST /v1/agl/waits/rollouts", http.StatusOK, "["+rollout+"}]")
	reply("GET /v1/agl/spans", http.StatusOK, page)
	srv := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	return srv.ListenAndServe()
}
