package client_test

import (
	"testing"

	"github.com/agl-go/agl/rest/client"
)

func TestSplitURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]string{
		"http://h:1":              {"http://h:1", ""},
		"http://agl:s%40e@h:1/x":  {"http://h:1/x", "s@e"},
		"https://agl@h":           {"https://h", ""},
		"http://bad host:x/%zz\n": {"http://bad host:x/%zz\n", ""},
	} {
		public, token := client.SplitURL(raw)
		if public != want[0] || token != want[1] {
			t.Errorf("%q: got %q and %q, want %q", raw, public, token, want)
		}
	}
}
