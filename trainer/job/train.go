package job

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/charmbracelet/x/term"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// Train runs the run file at path with an agent that is a part of this program, and shows
// its progress and its result on the standard output. The file needs no section agent;
// what it says there about attempts holds, its program is not started. The results are in
// the output folder that the file names, or beside it if that has a run already.
//
// Mistakes in the file are a *[runfile.Error]. Other errors, and results with an error,
// are those of [Run].
func Train(ctx context.Context, path string, agent agl.Agent) (*Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "read the run file: %w", err)
	}
	return runAndPrint(ctx, Config{Agent: agent, Source: output.Source{Path: path, Text: text}, Numbered: true}, "")
}

// Resume continues the run in a folder that [Train] began. A folder without a run is
// agl.ErrNotFound.
func Resume(ctx context.Context, folder string, agent agl.Agent) (*Result, error) {
	_, source, err := output.Read(folder)
	if err != nil {
		return nil, err
	}
	return runAndPrint(ctx, Config{Agent: agent, Source: source, Resume: true}, folder)
}

// runAndPrint completes the configuration, runs it and prints the result. The folder is that of
// a run to resume; empty means that the file names it.
func runAndPrint(ctx context.Context, cfg Config, folder string) (*Result, error) {
	var err error
	options := runfile.Options{Elsewhere: []runfile.Part{runfile.PartAgent}, Output: folder}
	if cfg.File, err = runfile.Parse(cfg.Source.Path, cfg.Source.Text, filepath.Dir(cfg.Source.Path), options); err != nil {
		return nil, err
	}
	if a := cfg.File.Algorithm; !cfg.hasAgent() && a != nil && !a.Needs().NoTasks {
		return nil, agl.Errorf(agl.CodeInvalid, "job: agent: got nil, must be an agent, as the run file names no program")
	}
	cfg.LookupEnv, cfg.Out = os.LookupEnv, os.Stdout
	cfg.Terminal = term.IsTerminal(os.Stdout.Fd()) && os.Getenv("TERM") != "dumb"
	cfg.Logger = display.Once(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	result, err := Run(ctx, cfg)
	if result != nil {
		err = errors.Join(err, result.Print(os.Stdout, cfg.Terminal))
	}
	return result, err
}
