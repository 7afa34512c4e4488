package admin

import (
	"testing"

	"github.com/agl-go/agl/proxy/upstream"
)

// Passwords, keys and what queries may have of both are for the proxy only.
func TestRedacted(t *testing.T) {
	t.Parallel()
	got := redacted([]upstream.Model{{
		Name: "qwen", BaseURL: "https://u:s3cret@host/v1?api-version=2&key=s3cret&s3cret", APIKey: "s3cret",
		HealthURL: "/health?key=s3cret", PauseURL: "/pause?mode=keep", ResumeURL: "/resume",
	}, {Name: "named", BaseURL: "http://host/v1", APIKey: "env:KEY"}})
	want := []upstream.Model{{
		Name: "qwen", BaseURL: "https://u:xxxxx@host/v1?api-version=xxxxx&key=xxxxx&xxxxx", APIKey: "redacted",
		HealthURL: "/health?key=xxxxx", PauseURL: "/pause?mode=xxxxx", ResumeURL: "/resume",
	}, {Name: "named", BaseURL: "http://host/v1", APIKey: "env:KEY"}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
}
