package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/runfile"
)

// TestDivergenceElsewhere: the guard kl is refused where the store that decides has no engine.
func TestDivergenceElsewhere(t *testing.T) {
	t.Parallel()
	for guards, want := range map[string]bool{"{kl: 0.1}": true, "{errors: 0.1}": false} {
		text := "engine: {policy: {}}\nproxy: {sessions: {idle_timeout: 1m}}\nstore: {url: 'http://127.0.0.1:1'}\nalgorithm: {online: {release: {guards: " + guards + "}}}"
		file, err := runfile.Parse("agl.yaml", []byte(text), t.TempDir(), runfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = Config{File: file}.withDefaults().validate()
		if refused := errors.Is(err, agl.ErrInvalid) && strings.Contains(err.Error(), "leave out store.url, or kl"); refused != want {
			t.Errorf("guards %s: got %v", guards, err)
		}
	}
}
