package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hideSecrets keeps other processes of the same user, such as agents, from reading the
// secrets in this process's environment: it erases them from where the kernel shows them
// (/proc/PID/environ), and closes memory and environment to all but root (PR_SET_DUMPABLE,
// see prctl(2)), which also turns core dumps off. The process's own copy of its environment
// stays. It does what it can: a system without /proc has nothing to hide.
func hideSecrets() {
	eraseEnvironment()
	// It fails on no kernel; seccomp filters may refuse it, and then nothing is lost.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// eraseEnvironment overwrites the values of secret variables where the kernel put them.
func eraseEnvironment() {
	environ, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return
	}
	start, ok := environmentStart()
	if !ok {
		return
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer memory.Close()
	at := start
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if name, value, ok := strings.Cut(string(variable), "="); ok && secretVariable(name) {
			// What is not erased is still closed by PR_SET_DUMPABLE.
			_, _ = memory.WriteAt(bytes.Repeat([]byte{'x'}, len(value)), at+int64(len(name)+1))
		}
		at += int64(len(variable) + 1)
	}
}

// environmentStart is the address of the environment: the field env_start of
// proc_pid_stat(5), number 50.
func environmentStart() (int64, bool) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, false
	}
	// The second field is a name in parentheses, which may hold spaces.
	const third, envStart = 3, 50
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= envStart-third {
		return 0, false
	}
	start, err := strconv.ParseInt(fields[envStart-third], 10, 64)
	return start, err == nil && start > 0
}

// secretVariable reports whether a variable holds a secret, by its name.
func secretVariable(name string) bool {
	name = strings.ToUpper(name)
	for _, word := range []string{"TOKEN", "KEY", "SECRET", "PASSWORD", "AGL_DB"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return name == "AGL_STORE_URL" // may hold the token as its password
}
