package secret

import (
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "tok", "a b", "pässwort", "agl_b5xw2n7kq4ta_x-_.~+/="} {
		if err := Check("token", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"tok\n": "U+000A", "tok\r\n": "U+000D", "\uFEFFtok": "U+FEFF", "a\tb": "U+0009", "a\x00b": "U+0000", "\xfft": "U+FFFD", " tok": "a space", "tok ": "a space",
	} {
		err := Check("AGL_TOKEN", bad)
		if agl.ErrorCode(err) != agl.CodeInvalid || !strings.HasPrefix(err.Error(), "AGL_TOKEN: has ") || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "tok\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	if u, err := ParseURL("http://agl:s3cret@host:1/p"); err != nil || u.Host != "host:1" {
		t.Errorf("got %v, %v", u, err)
	}
	for _, wrong := range []string{"http://agl:s3cret@host:x", "http://agl:s3cret@host:65536", "http://agl:s3%zz@host", "http://agl:s3cret@host\n", ":s3cret"} {
		if u, err := ParseURL(wrong); err == nil || strings.Contains(err.Error(), "s3") {
			t.Errorf("%q: got %v, %v", wrong, u, err)
		}
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://agl:s3cret@host/p": "https://agl:xxxxx@host/p",
		"https://s3cret@host/p":     "https://xxxxx@host/p",
		"agl:s3cret@host:4747":      "(not a URL)",
		"http://agl:s3%zz@host":     "(not a URL)",
		"localhost:4747":            "localhost:4747",
		"http://h/v1?v=2&key=s3&s3": "http://h/v1?v=xxxxx&key=xxxxx&xxxxx",
		"/pause?key=s3cret":         "/pause?key=xxxxx",
		"http://h:x?key=s3cret":     "(not a URL)",
		"http://host/a b":           "http://host/a%20b",
		"%zz":                       "%zz",
	} {
		if got := RedactURL(url); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", url, got, want)
		}
	}
}
