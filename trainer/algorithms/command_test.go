package algorithms_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
)

// shown keeps the lines of a display.
type shown struct{ lines chan string }

func (s shown) Update(u display.Update) { s.lines <- u.Line }
func (shown) Notice(string)             {}
func (shown) Close()                    {}

func command(t *testing.T, script string) (algorithms.Run, shown) {
	t.Helper()
	s := shown{make(chan string, 16)}
	run, err := (&algorithms.Command{Command: []string{"sh", "-c", script}, Dir: t.TempDir()}).New(algorithms.Parts{
		RunConfig: algorithm.RunConfig{OutDir: t.TempDir(), Seed: 7, RunID: "ru-1"}, Environ: []string{"PATH=" + os.Getenv("PATH"), "MINE=kept"}, StoreToken: "secret", Display: s,
	})
	if err != nil {
		t.Fatal(err)
	}
	return run, s
}

func TestCommand(t *testing.T) {
	t.Parallel()
	in := agl.AlgorithmInput{Store: memorytest.Open(t), StoreURL: "http://store", Train: agl.Tasks{[]byte("{\"q\":\n1}"), []byte(`"two"`)}}
	run, s := command(t, `echo "$AGL_STORE_URL $AGL_TOKEN $AGL_SEED $AGL_RUN_ID $MINE ${AGL_PROXY_URL-none} ${AGL_VAL_TASKS-absent}"; cat "$AGL_TRAIN_TASKS" >&2`)
	if err := run.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"http://store secret 7 ru-1 kept none absent", `{"q":1}`, `"two"`} {
		if got := <-s.lines; got != want {
			t.Errorf("got the line %q, want %q", got, want)
		}
	}
	if latest, err := in.Store.GetLatestResources(t.Context()); err != nil || len(latest.Resources) > 0 {
		t.Errorf("the resources of rollouts that name none: %v, %v; want an empty bundle", latest, err)
	}
	run, _ = command(t, "echo the loss is not finite; exit 3")
	if err := run.Run(t.Context(), in); err == nil || !strings.Contains(err.Error(), "exit status 3: the loss is not finite") {
		t.Errorf("a failure: got %v", err)
	}
	_, err := (&algorithms.Command{Command: []string{"./none"}, Dir: t.TempDir()}).New(algorithms.Parts{})
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "algorithm.command") {
		t.Errorf("no program: got %v", err)
	}
}

// The program is asked to end when the run does, with what it has started.
func TestCommandStops(t *testing.T) {
	t.Parallel()
	ended := filepath.Join(t.TempDir(), "ended")
	run, s := command(t, `trap 'echo bye > "`+ended+`"; exit 0' TERM; echo ready; while :; do sleep 1; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() { done <- run.Run(ctx, agl.AlgorithmInput{Store: memorytest.Open(t)}) }()
	<-s.lines
	cancel(enough)
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(ended); err != nil || string(text) != "bye\n" {
		t.Errorf("the program was not asked: %q, %v", text, err)
	}
}
