// Command agent is the smallest possible agent: it reads its task's file and writes its
// result's, so that the cost of a rollout is that of running a process.
package main

import (
	"bytes"
	"os"
)

func main() {
	task, err := os.ReadFile(os.Getenv("AGL_TASK_FILE"))
	if err == nil {
		reward := []byte(`{"reward": 0}`)
		if bytes.Contains(task, []byte("question")) {
			reward = []byte(`{"reward": 1}`)
		}
		err = os.WriteFile(os.Getenv("AGL_RESULT_FILE"), reward, 0o600)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n") // the exit code says so, too
		os.Exit(1)
	}
}
