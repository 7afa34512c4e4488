package spelling_test

import (
	"testing"

	"github.com/agl-go/agl/internal/spelling"
)

func TestMeant(t *testing.T) {
	t.Parallel()
	words := []string{"cert", "db", "serve", "stats", "train", "workers"}
	for written, want := range map[string]string{
		"workrs": "workers", "trane": "train", "status": "stats", "serv": "serve", "Train": "train", "dbs": "db", "tarin": "train", "cret": "cert",
		"best": "", "ls": "", "x": "", "": "", "worst": "", "frob": "",
	} {
		if got := spelling.Meant(written, words); got != want {
			t.Errorf("Meant(%q) = %q, want %q", written, got, want)
		}
	}
}
