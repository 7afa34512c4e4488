package httpproxy_test

import (
	"slices"
	"testing"

	"github.com/agl-go/agl/internal/httpproxy"
)

func TestBypass(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ env, added []string }{
		"no HTTP proxy":          {[]string{"A=1", "NO_PROXY=corp.example"}, nil},
		"an empty one":           {[]string{"HTTP_PROXY="}, nil},
		"no exceptions":          {[]string{"http_proxy=http://p:1"}, []string{"NO_PROXY=localhost,127.0.0.1", "no_proxy=localhost,127.0.0.1"}},
		"one of the two":         {[]string{"ALL_PROXY=p", "no_proxy=corp.example, localhost"}, []string{"NO_PROXY=corp.example,localhost,127.0.0.1", "no_proxy=corp.example,localhost,127.0.0.1"}},
		"both":                   {[]string{"HTTPS_PROXY=p", "no_proxy=a", "NO_PROXY=b", "no_proxy=c"}, []string{"NO_PROXY=b,localhost,127.0.0.1", "no_proxy=c,localhost,127.0.0.1"}},
		"nothing through it":     {[]string{"HTTPS_PROXY=p", "NO_PROXY=*"}, []string{"NO_PROXY=*", "no_proxy=*"}},
		"a star among others":    {[]string{"HTTPS_PROXY=p", "NO_PROXY=a,*"}, []string{"NO_PROXY=a,*,localhost,127.0.0.1", "no_proxy=a,*,localhost,127.0.0.1"}},
		"unset by a later one":   {[]string{"HTTPS_PROXY=p", "HTTPS_PROXY="}, nil},
		"exceptions have it all": {[]string{"HTTP_PROXY=p", "NO_PROXY=127.0.0.1,localhost"}, []string{"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}},
	} {
		before := slices.Clone(test.env)
		if got, want := httpproxy.Bypass(test.env), append(slices.Clone(before), test.added...); !slices.Equal(got, want) || !slices.Equal(test.env, before) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
