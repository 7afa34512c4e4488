package trainer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

// unreadable is a store whose documents cannot be read.
type unreadable struct{ *store.Store }

func (unreadable) GetDocument(context.Context, string, string) (agl.Document, error) {
	return agl.Document{}, errors.New("it cannot be read")
}

// lines receives the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// The log of a run has what is wrong with the releases of its store, also for a proxy without a Logger.
func TestReleasesAreLogged(t *testing.T) {
	t.Parallel()
	driver, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := store.New(t.Context(), store.Config{Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	p := NewProxy(ProxyConfig{Config: proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: "http://127.0.0.1:1/v1"}}, Sessions: proxy.Sessions{IdleTimeout: time.Minute},
	}})
	log := make(lines, 100)
	if _, err := p.start(t.Context(), unreadable{engine}, slog.New(slog.NewTextHandler(log, nil))); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(<-log, "watching a release failed") {
	}
	if err := errors.Join(p.stop(t.Context()), engine.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
