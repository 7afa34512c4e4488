package flags

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// That a passed socket serves is tested with real processes, by test/gateway/run.sh.
func TestPassedSocket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pid, count, want string }{
		"none":               {"", "", ""},
		"of another process": {"1", "1", ""},
		"several":            {strconv.Itoa(os.Getpid()), "2", "LISTEN_FDS=2: this process was passed as many sockets, and takes one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := passedSocket(func(name string) string { return map[string]string{"LISTEN_PID": c.pid, "LISTEN_FDS": c.count}[name] })
			if got != nil || (err != nil) != (c.want != "") || err != nil && err.Error() != c.want {
				t.Errorf("got %v and %v, want error %q", got, err, c.want)
			}
		})
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	for host, good := range map[string]bool{
		"127.0.0.1": true, "::1": true, "localhost": true, "[::1]": false, "127.0.0.1:4747": false, "[::1]:4747": false, "localhost:": false, "http://127.0.0.1": false,
	} {
		if err := (&Listen{Host: host}).Check(false, "advice"); (err == nil) != good || !good && !strings.Contains(err.Error(), "must be an address or a name alone") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host          string
		authenticates bool
		flags         Listen
		want          string
	}{
		"loopback":             {"127.0.0.1", false, Listen{Host: "127.0.0.1"}, ""},
		"every address":        {"0.0.0.0", false, Listen{Host: "127.0.0.1"}, "which others can reach"},
		"with credentials":     {"0.0.0.0", true, Listen{Host: "127.0.0.1"}, "read what is sent"},
		"with both":            {"0.0.0.0", true, Listen{Host: "127.0.0.1", TLSCert: "c", TLSKey: "k"}, ""},
		"in the clear":         {"0.0.0.0", true, Listen{Host: "127.0.0.1", Insecure: true}, ""},
		"allowed by --no-auth": {"0.0.0.0", false, Listen{Host: "127.0.0.1", NoAuth: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config net.ListenConfig
			listener, err := config.Listen(t.Context(), "tcp4", c.host+":0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if err := c.flags.Check(c.authenticates, "advice"); err != nil {
				t.Fatal(err)
			}
			_, err = c.flags.admit(listener, nil)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
