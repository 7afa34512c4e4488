// Package process runs a program in any language as the agent of a runner: one process for each attempt, or processes that
// serve many ([KeepaliveStdio]). [New] makes the agent from a [Config]. The program needs no library: its environment has
// everything that it needs, under names that SDKs read already.
//
// # Environment
//
//	AGL_ROLLOUT_ID, AGL_ATTEMPT_ID, AGL_MODE, AGL_WORKER_ID   whose attempt this is
//	AGL_STORE_URL                                             where the store is
//	AGL_TASK, AGL_TASK_FILE                                   the task's input as JSON; the variable only up to 64 KiB
//	AGL_RESOURCES_FILE                                        the resources as JSON
//	AGL_PROMPT_<NAME>                                         each prompt template's text, up to 64 KiB
//	AGL_RESULT_FILE                                           where the program may leave its result
//	AGL_MODEL, OPENAI_MODEL                                   the model to ask for
//	OPENAI_BASE_URL, OPENAI_API_BASE, OPENAI_API_KEY          where to ask, ending in /v1
//	ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN   the same without the /v1
//	AGL_EMIT_URL, AGL_EMIT_KEY                                where the proxy takes rewards and messages while the agent runs
//	OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_RESOURCE_ATTRIBUTES, TRACEPARENT, …   spans land in the attempt
//
// The agent does not inherit the store's own token (AGL_TOKEN) and the variables of
// execution roles: the credentials that it gets are valid for its attempt only.
//
// # Result
//
// The result file holds {"reward": 0.7}, {"rewards": {"accuracy": 1, "brevity": 0.3}} (the first is the primary one) or
// {"error": "…"}. Without the file, the last line of standard output counts if it is a JSON object with reward, rewards or
// error. A non-zero exit fails the attempt whatever the result, and an error fails it even with exit 0. Both output streams
// are recorded as message spans, long ones without their middle.
//
// # End
//
// When the attempt is cancelled or out of time, SIGTERM goes to the process group and, after the grace period, SIGKILL.
// Nothing of the group survives an attempt; with a [Reaper], nothing that the program has started does.
//
// The package must not know the store, the queue or the proxy.
package process
