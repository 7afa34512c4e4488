package project_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// tenants opens projects that answer with their name, and count what becomes of them.
type tenants struct {
	opened, closed atomic.Int64
	running        atomic.Int64
	block          chan struct{} // what requests of /block wait for
}

func (s *tenants) open(_ context.Context, name string) (*project.Tenant, error) {
	if name == "broken" {
		return nil, agl.Errorf(agl.CodeInternal, "the disk has a secret")
	}
	s.opened.Add(1)
	drained := make(chan struct{})
	return &project.Tenant{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.running.Add(1)
			defer s.running.Add(-1)
			if r.URL.Path == "/block" {
				select {
				case <-s.block:
				case <-drained:
				}
			}
			_, _ = io.WriteString(w, name+" "+r.URL.EscapedPath())
		}),
		Drain: func() { close(drained) },
		Close: func(context.Context) error {
			if s.running.Load() != 0 {
				return errors.New("closed while requests run")
			}
			s.closed.Add(1)
			return nil
		},
	}, nil
}

func newHost(t *testing.T, s *tenants, names ...string) (*project.Host, *project.Registry) {
	t.Helper()
	registry := project.NewRegistry(memorytest.Open(t), func(context.Context, string) error { return nil })
	for _, name := range names {
		if _, err := registry.Create(t.Context(), name, "root", access.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	return project.NewHost(project.Config{Registry: registry, Open: s.open, Idle: time.Minute}), registry
}

func get(t *testing.T, h *project.Host, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestPathsOfProjects(t *testing.T) {
	t.Parallel()
	s := &tenants{}
	h, _ := newHost(t, s, "a", "b", "broken")
	for path, want := range map[string]string{
		"/p/a/":                        "a /",
		"/p/a/v1/agl/rollouts/":        "a /v1/agl/rollouts/",
		"/p/b/v1/agl/rollouts/x%2Fy":   "b /v1/agl/rollouts/x%2Fy",
		"/p/b/v1/agl/rollouts/%2E%2Ex": "b /v1/agl/rollouts/%2E%2Ex",
	} {
		if status, body := get(t, h, path); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	for _, path := range []string{
		"/p/", "/p//a/", "/p/c/", "/p/A/", "/p/%61/", "/p/a%2Fx/", "/p/a/../b/", "/p/a/%2e%2e/b/", "/p/a/./x", "/p/a/%2E/x", "/p/a//x", "/p/../p/a/", "/p/-a/",
	} {
		if status, body := get(t, h, path); status != http.StatusNotFound {
			t.Errorf("%s: %d %s, want 404", path, status, body)
		}
	}
	if status, body := get(t, h, "/p/broken/"); status != http.StatusInternalServerError || body != `{"detail":"the project broken cannot be opened","error_type":"InternalError","code":"internal"}` {
		t.Errorf("one that cannot be opened: %d %s", status, body)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if status, _ := get(t, h, "/p/a/"); status != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d", status)
	}
	if s.opened.Load() != 2 || s.closed.Load() != 2 {
		t.Errorf("%d were opened and %d closed", s.opened.Load(), s.closed.Load())
	}
}

// A project is closed when nobody has used it for a while, and opened again.
func TestIdleProjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &tenants{block: make(chan struct{})}
		h, _ := newHost(t, s, "a")
		done := make(chan struct{})
		go func() {
			get(t, h, "/p/a/block")
			close(done)
		}()
		time.Sleep(2 * time.Minute)
		if s.opened.Load() != 1 || s.closed.Load() != 0 {
			t.Errorf("while a request runs: %d opened, %d closed", s.opened.Load(), s.closed.Load())
		}
		close(s.block)
		<-done
		time.Sleep(59 * time.Second)
		get(t, h, "/p/a/")
		time.Sleep(59 * time.Second)
		if s.closed.Load() != 0 {
			t.Error("it was closed although it is used")
		}
		time.Sleep(2 * time.Second)
		if s.closed.Load() != 1 {
			t.Error("it was not closed")
		}
		if _, body := get(t, h, "/p/a/x"); body != "a /x" || s.opened.Load() != 2 {
			t.Errorf("again: %s, %d opened", body, s.opened.Load())
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An archived project is refused and closed within a second, and what waits in it ends.
func TestArchivedProjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &tenants{block: make(chan struct{})}
		h, registry := newHost(t, s, "a", "b")
		waiting := make(chan string)
		go func() {
			_, body := get(t, h, "/p/a/block")
			waiting <- body
		}()
		get(t, h, "/p/b/")
		synctest.Wait()
		p, err := registry.Update(t.Context(), "a", project.Change{By: "me", Archived: new(true)})
		if err != nil || p.ArchiveTime == nil || p.ArchivedBy != "me" {
			t.Errorf("%+v, %v", p, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		select { // before another request comes
		case body := <-waiting:
			if body != "a /block" {
				t.Errorf("who waited got %s", body)
			}
		default:
			t.Fatal("it goes on waiting")
		}
		if status, body := get(t, h, "/p/a/"); status != http.StatusNotFound {
			t.Errorf("an archived one: %d %s", status, body)
		}
		synctest.Wait()
		if s.closed.Load() != 1 {
			t.Errorf("%d were closed", s.closed.Load())
		}
		if status, _ := get(t, h, "/p/b/"); status != http.StatusOK {
			t.Errorf("another one: %d", status)
		}
		if _, err := registry.Update(t.Context(), "a", project.Change{By: "me", Archived: new(false)}); err != nil {
			t.Error(err)
		}
		if status, _ := get(t, h, "/p/a/"); status != http.StatusOK {
			t.Errorf("resumed: %d", status)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The database of an archived project is free for other programs before the project would be closed as unused.
func TestArchivedUnusedProjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &tenants{}
		h, registry := newHost(t, s, "a", "b")
		get(t, h, "/p/a/")
		get(t, h, "/p/b/")
		if _, err := registry.Update(t.Context(), "a", project.Change{By: "me", Archived: new(true)}); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if s.closed.Load() != 1 {
			t.Errorf("%d were closed, want the archived one", s.closed.Load())
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slow documents take a second to be read.
type slow struct{ agl.DocumentStore }

func (s slow) GetDocument(ctx context.Context, kind, id string) (agl.Document, error) {
	time.Sleep(time.Second)
	return s.DocumentStore.GetDocument(ctx, kind, id)
}

// A registry that takes longer than registryTTL to answer makes a request slow, but the request does not ask it again and again.
func TestSlowRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &tenants{}
		registry := project.NewRegistry(slow{memorytest.Open(t)}, func(context.Context, string) error { return nil })
		if _, err := registry.Create(t.Context(), "a", "root", access.Limits{}); err != nil {
			t.Fatal(err)
		}
		h := project.NewHost(project.Config{Registry: registry, Open: s.open})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/p/a/x", nil))
		if w.Code != http.StatusOK || w.Body.String() != "a /x" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	var made []string
	registry := project.NewRegistry(memorytest.Open(t), func(_ context.Context, name string) error {
		made = append(made, name)
		return nil
	})
	for _, name := range []string{"", "A", "a/b", "..", "-a", "a_b", "a\x00", string(make([]byte, 50))} {
		if _, err := registry.Create(t.Context(), name, "root", access.Limits{}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := registry.Get(t.Context(), name); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"b", "a"} {
		if p, err := registry.Create(t.Context(), name, "root", access.Limits{}); err != nil || p.Name != name || p.CreatedBy != "root" {
			t.Errorf("%+v, %v", p, err)
		}
		if _, err := registry.Create(t.Context(), name, "root", access.Limits{}); !errors.Is(err, agl.ErrConflict) {
			t.Errorf("again: %v", err)
		}
	}
	if _, err := registry.Update(t.Context(), "c", project.Change{By: "root", Archived: new(true)}); !errors.Is(err, agl.ErrNotFound) {
		t.Error(err)
	}
	limited, err := registry.Update(t.Context(), "b", project.Change{Limits: func(l access.Limits) access.Limits { l.MaxTokens += 7; return l }})
	if err != nil || limited.Limits != (access.Limits{MaxTokens: 7}) || limited.ArchiveTime != nil {
		t.Errorf("%+v, %v", limited, err)
	}
	if _, err := registry.Update(t.Context(), "b", project.Change{Limits: func(access.Limits) access.Limits { return access.Limits{MaxCalls: -1} }}); !errors.Is(err, agl.ErrInvalid) {
		t.Error(err)
	}
	if p, err := registry.Get(t.Context(), "b"); err != nil || p.Limits != limited.Limits {
		t.Errorf("%+v, %v", p, err)
	}
	list, err := registry.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "a" || len(made) != 2 {
		t.Errorf("%+v, %v, made %q", list, err, made)
	}
}
