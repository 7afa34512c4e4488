package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl/examples/calculator/recipe"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/trainer/engine"
)

// The values of --engine other than a URL: where the model is trained and sampled.
const (
	engineEmbedded = "embedded" // in this process
	engineHTTP     = "http"     // in a process of its own, over the Tinker protocol
)

// validateEngine checks --engine.
func (o options) validateEngine() error {
	if o.Engine == engineEmbedded || o.Engine == engineHTTP {
		return nil
	}
	if u, err := url.Parse(o.Engine); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--engine: got %s, must be embedded, http, or the URL of an engine such as http://127.0.0.1:4749", redacted(o.Engine))
	}
	return nil
}

// newEngine makes the engine; closeEngine closes it.
func newEngine(ctx context.Context, opt options, log *slog.Logger) (_ *engine.Engine, closeEngine func(context.Context) error, err error) {
	if opt.Engine == engineEmbedded {
		e, err := recipe.NewEngine(subdir(opt.Out, "policy"), log)
		if err != nil {
			return nil, nil, err
		}
		return e, e.Close, nil
	}
	address, end := opt.Engine, func() error { return nil }
	if address == engineHTTP {
		process, err := startEngine(ctx, opt)
		if err != nil {
			return nil, nil, fmt.Errorf("start the engine's process: %w", err)
		}
		address, end = process.url, process.end
	}
	e, err := engine.NewRemote(engine.RemoteConfig{Client: client.Config{URL: address}, Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return e, func(ctx context.Context) error { return errors.Join(e.Close(ctx), end()) }, nil
}

// engineProcess is a copy of this program that serves the policy, as `agl policy serve` does.
type engineProcess struct {
	command *exec.Cmd
	stdin   io.Closer
	url     string
}

// startEngine starts an engine process. It ends when its standard input is closed, so that it cannot outlive this process.
func startEngine(ctx context.Context, opt options) (_ *engineProcess, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arguments := []string{"--serve-engine", "--log-level", opt.LogLevel}
	if opt.Out != "" {
		arguments = append(arguments, "--out", opt.Out)
	}
	// The training still needs the engine to save a checkpoint when ctx ends.
	command := exec.CommandContext(context.WithoutCancel(ctx), self, arguments...)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &engineProcess{command: command, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("it does not print its URL: %w", err), p.end())
	}
	p.url = strings.TrimSpace(line)
	return p, nil
}

func (p *engineProcess) end() error {
	return errors.Join(p.stdin.Close(), p.command.Wait())
}

// serveEngine runs this process as an engine process.
func serveEngine(ctx context.Context, opt options, log *slog.Logger) (err error) {
	// Ctrl-C reaches both processes; the training still needs the engine.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	e, err := recipe.NewEngine(subdir(opt.Out, "policy"), log)
	if err != nil {
		return err
	}
	handler, err := server.New(server.Config{Service: e.Service, Logger: log})
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, handler.Close())
	}
	const header, idle = 10 * time.Second, 2 * time.Minute
	web := &http.Server{Handler: handler, ReadHeaderTimeout: header, IdleTimeout: idle}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	fmt.Printf("http://%s\n", listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin) // until the process that started this one closes it
	err = errors.Join(err, handler.Close(), web.Close())
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

// slowTrainer is an engine whose optimizer steps take longer.
type slowTrainer struct {
	tinker.Service

	by time.Duration
}

// CreateModel implements [tinker.Service].
func (s slowTrainer) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	client, err := s.Service.CreateModel(ctx, p)
	if err != nil || s.by == 0 {
		return client, err
	}
	return slowClient{client, s.by}, nil
}

type slowClient struct {
	tinker.TrainingClient

	by time.Duration
}

// OptimStep implements [tinker.TrainingClient].
func (c slowClient) OptimStep(ctx context.Context, p tinker.AdamParams) (tinker.OptimStepResult, error) {
	if err := pause(ctx, c.by); err != nil {
		return tinker.OptimStepResult{}, err
	}
	return c.TrainingClient.OptimStep(ctx, p)
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
