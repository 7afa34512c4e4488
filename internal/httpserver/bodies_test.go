package httpserver_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
)

// The bodies that are arriving hold bounded memory, and one client cannot hold all of it.
func TestArrivingBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		web := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				status, _ := httpserver.BodyStatus(err)
				w.WriteHeader(status)
				return
			}
			fmt.Fprint(w, n)
		}), slog.New(slog.DiscardHandler))
		send := func(address string, body io.Reader) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
			r.RemoteAddr = address
			w := &deadlines{httptest.NewRecorder()}
			web.Handler.ServeHTTP(w, r)
			return w.ResponseRecorder
		}
		const size = 60 << 20
		var stuck sync.WaitGroup
		var half []*io.PipeWriter
		stick := func(address string, want int) {
			pr, pw := io.Pipe()
			half = append(half, pw)
			stuck.Go(func() {
				if got := send(address, io.MultiReader(io.LimitReader(zeros{}, size), pr)); got.Code != want {
					t.Errorf("half a body from %s: %d, want %d", address, got.Code, want)
				}
			})
			synctest.Wait()
		}
		stick("10.0.0.1:1", http.StatusBadRequest) // when it breaks off
		stick("10.0.0.1:2", http.StatusBadRequest)
		for port := range 18 {
			stick(fmt.Sprintf("10.0.0.1:%d", 3+port), http.StatusServiceUnavailable)
		}
		if got := send("10.0.0.2:1", io.LimitReader(zeros{}, size)); got.Code != http.StatusOK || got.Body.String() != fmt.Sprint(size) {
			t.Errorf("another client: %d %s", got.Code, got.Body)
		}
		if got := send("10.0.0.1:9", io.LimitReader(zeros{}, 60<<10)); got.Code != http.StatusOK {
			t.Errorf("a small body of the same client: %d", got.Code)
		}
		stick("10.0.0.3:1", http.StatusBadRequest)
		stick("10.0.0.3:2", http.StatusBadRequest)
		if got := send("10.0.0.2:1", io.LimitReader(zeros{}, size)); got.Code != http.StatusServiceUnavailable {
			t.Errorf("beyond the limit of the server: %d, want 503", got.Code)
		}
		for _, pw := range half {
			pw.CloseWithError(io.ErrUnexpectedEOF)
		}
		stuck.Wait()
		for range 5 { // everything was given back
			if got := send("10.0.0.1:1", io.LimitReader(zeros{}, size)); got.Code != http.StatusOK {
				t.Errorf("afterwards: %d", got.Code)
			}
		}
	})
}

// Handlers reserve what they allocate ahead of the body, or decompress.
func TestHoldBody(t *testing.T) {
	t.Parallel()
	web := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch err := httpserver.HoldBody(r, 100<<20); {
		case err != nil:
			t.Error(err)
		case httpserver.HoldBody(r, 90<<20) != nil:
			t.Error("less than what is held was refused")
		case !errors.Is(httpserver.HoldBody(r, 200<<20), httpserver.ErrBusy):
			t.Error("more than one client may have was reserved")
		}
		w.WriteHeader(http.StatusNoContent)
	}), slog.New(slog.DiscardHandler))
	for range 3 { // the end of a request gives its memory back
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.LimitReader(zeros{}, 1<<20))
		web.Handler.ServeHTTP(&deadlines{httptest.NewRecorder()}, r)
	}
	if err := httpserver.HoldBody(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), 1<<40); err != nil {
		t.Errorf("a request of another server: %v", err)
	}
}

// deadlines is a recorder that takes deadlines, as connections do.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetReadDeadline(time.Time) error { return nil }

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
