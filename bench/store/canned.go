package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/agl-go/agl/bench/internal/bench"
)

// roleCanned makes the program serve canned replies instead of measuring.
const roleCanned = "canned"

// serveCanned answers every request with a fixed reply of the size and form of a
// store's: the least work of a net/http server. The replies are those of one rollout, so
// the load verifies them as it verifies a store's, and does the same work for both.
func serveCanned() error {
	rollout := `{"rollout_id":"ro-000000000000","input":{"question":"12 times 7","index":0},"start_time":1795172350.7193449,"end_time":null,"mode":"train","resources_id":"rs-000000000000","status":"preparing","config":{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_condition":[]},"metadata":{}`
	attempt := `{"rollout_id":"ro-000000000000","attempt_id":"at-00000000","sequence_id":1,"start_time":1795172350.7249382,"end_time":null,"status":"preparing","worker_id":"runner-0","last_heartbeat_time":null,"metadata":null}`
	resources := `{"resources_id":"rs-000000000000","create_time":1.5,"update_time":1.5,"version":1,"resources":` + benchResources + `}`
	spans := make([]string, spansPerRollout)
	for i := range spans {
		spans[i] = string(makeSpan(nil, "ro-000000000000", "at-00000000", int64(i+1), i))
	}
	finished := strings.Replace(rollout, `"status":"preparing"`, `"status":"succeeded"`, 1)
	page := `{"items":[` + strings.Join(spans, ",") + `],"limit":-1,"offset":0,"total":8}`
	mux := http.NewServeMux()
	reply := func(pattern string, status int, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // who is measured notices a broken connection
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // as above
		})
	}
	reply("GET /v1/agl/health", http.StatusOK, `{"status":"ok"}`)
	reply("POST /v1/agl/resources", http.StatusCreated, resources)
	reply("GET /v1/agl/resources/{id}", http.StatusOK, resources)
	reply("POST /v1/agl/queues/rollouts/enqueue", http.StatusCreated, "["+rollout+"}]")
	reply("POST /v1/agl/queues/rollouts/dequeue", http.StatusOK, "["+rollout+`,"attempt":`+attempt+"}]")
	reply("POST /v1/agl/spans/next", http.StatusOK, `{"sequence_id":1}`)
	reply("POST /v1/agl/spans", http.StatusCreated, spans[0])
	reply("POST /v1/agl/rollouts/{id}/attempts/{attempt}", http.StatusOK, attempt)
	reply("POST /v1/agl/waits/rollouts", http.StatusOK, "["+finished+"}]")
	reply("GET /v1/agl/spans", http.StatusOK, page)
	return bench.Serve(mux)
}
