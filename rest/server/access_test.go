package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Every route declares its scopes and keeps to them: with each single scope, without a
// key, and with a revoked one. One that declares nothing is closed even to the root.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	ui := http.NotFoundHandler()
	for name, page := range map[string]http.Handler{"with a page": ui, "without": nil} {
		api, err := New(Config{Store: store, Token: "s3cret", Keys: keys, UI: page})
		if err != nil {
			t.Fatal(err)
		}
		const forgotten = "/v1/agl/forgotten"
		api.route(forgotten, methods{http.MethodGet: {}})
		for _, m := range api.routes { // what is behind the routes does not matter, only who gets there
			for method, to := range m {
				m[method] = endpoint{to.scope, func(x *exchange) error { return x.answerText(http.StatusOK, `"reached"`) }}
			}
		}
		callers := map[string]access.Scope{"": 0, "s3cret": access.Any}
		for i := range 7 {
			scope := access.Scope(1 << i)
			p := access.NewKey{Name: scope.String(), Scopes: scope}
			if scope == access.Agent {
				p.Attempt = agl.Some(agl.Claim{RolloutID: "r", AttemptID: "a"})
			}
			created, err := keys.Create(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			callers[created.Text] = scope
			if scope == access.Admin {
				gone, err := keys.Create(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := keys.Revoke(t.Context(), gone.ID, "test"); err != nil {
					t.Fatal(err)
				}
				callers[gone.Text] = 0
			}
		}
		walked := 0
		for path, m := range api.routes {
			for method, to := range m {
				if (to.scope == 0) != (path == forgotten) {
					t.Errorf("%s: %s %s declares the scopes (%s)", name, method, path, to.scope)
				}
				for key, has := range callers {
					want := http.StatusOK
					switch caller := (access.Caller{Scopes: has}); {
					case to.scope&access.Public != 0:
					case has == 0:
						want = http.StatusUnauthorized
					case caller.Allow(to.scope) != nil:
						want = http.StatusForbidden
					}
					r := httptest.NewRequestWithContext(t.Context(), method, strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path), strings.NewReader("{"))
					r.Header.Set("Authorization", "Bearer "+key)
					w := httptest.NewRecorder()
					api.ServeHTTP(w, r)
					if reached := w.Body.String() == `"reached"`; w.Code != want || reached != (want == http.StatusOK) {
						t.Errorf("%s: %s %s with (%s): %d %s, want %d", name, method, path, has, w.Code, w.Body, want)
					}
					walked++
				}
			}
		}
		if walked < 400 {
			t.Errorf("%s: only %d requests were made", name, walked)
		}
	}
}

// A key that may only do its own work makes no rollout that proxies would take for a session of theirs.
func TestSessionsAreMadeByProxies(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	api, err := New(Config{Store: store, Token: "s3cret", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for scope, want := range map[access.Scope]int{access.Live: http.StatusBadRequest, access.Runner: http.StatusCreated, access.Live | access.Train: http.StatusCreated} {
		created, err := keys.Create(t.Context(), access.NewKey{Name: "app", Scopes: scope})
		if err != nil {
			t.Fatal(err)
		}
		for metadata, want := range map[string]int{`{"agl.session":"key:ab"}`: want, `{"agl.session_m\u006fdels":{"a":"b"}}`: want, `{"agl.user":"ada"}`: http.StatusCreated} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl/rollouts", strings.NewReader(`{"input":1,"metadata":`+metadata+`}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+created.Text)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s with (%s): got %d %s, want %d", metadata, scope, w.Code, w.Body, want)
			}
		}
	}
}

// A stream of events ends when the key of who reads it is revoked or expires, and says why.
func TestEventsEndWithTheKey(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *access.Keys, string){
		"revoked": func(t *testing.T, keys *access.Keys, id string) {
			t.Helper()
			if _, err := keys.Revoke(t.Context(), id, "test"); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(*testing.T, *access.Keys, string) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memorytest.Open(t)
				keys := access.NewKeys(store)
				api, err := New(Config{Store: store, Token: "s3cret", Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				created, err := keys.Create(t.Context(), access.NewKey{Name: "reader", Scopes: access.Read, Expire: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/events", nil)
				r.Header.Set("Authorization", "Bearer "+created.Text)
				w, ended := httptest.NewRecorder(), make(chan struct{})
				go func() {
					defer close(ended)
					api.ServeHTTP(w, r)
				}()
				time.Sleep(10 * time.Minute)
				select {
				case <-ended:
					t.Fatalf("the stream has ended before its key: %s", w.Body)
				default:
				}
				lose(t, keys, created.ID)
				time.Sleep(2 * time.Second)
				select {
				case <-ended:
				default:
					t.Fatal("the stream goes on without a key")
				}
				if !strings.Contains(w.Body.String(), "event: error\ndata: ") {
					t.Errorf("got %q", w.Body)
				}
			})
		})
	}
}

// A request that waits ends within a second of its key, and a runner whose key is gone gets no work.
func TestWaitsEndWithTheKey(t *testing.T) {
	t.Parallel()
	for path, body := range map[string]string{
		"/v1/agl/queues/rollouts/dequeue": `{"wait_seconds":60}`, "/v1/agl/waits/rollouts": `{"rollout_ids":["%s"]}`, "/v1/agl/collect?min=1&wait_seconds=60": "",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memorytest.Open(t)
				keys := access.NewKeys(store)
				api, err := New(Config{Store: store, Token: "s3cret", Keys: keys, Collector: waitingCollector{}})
				if err != nil {
					t.Fatal(err)
				}
				created, err := keys.Create(t.Context(), access.NewKey{Name: "runner", Scopes: access.Runner})
				if err != nil {
					t.Fatal(err)
				}
				running, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}})
				if err != nil {
					t.Fatal(err)
				}
				method := http.MethodPost
				if body == "" {
					method = http.MethodGet
				}
				r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(strings.Replace(body, "%s", running.RolloutID, 1)))
				r.Header.Set("Authorization", "Bearer "+created.Text)
				w, ended := httptest.NewRecorder(), make(chan struct{})
				go func() {
					defer close(ended)
					api.ServeHTTP(w, r)
				}()
				time.Sleep(5 * time.Second)
				select {
				case <-ended:
					t.Fatalf("it does not wait: %d %s", w.Code, w.Body)
				default:
				}
				if _, err := keys.Revoke(t.Context(), created.ID, "test"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				select {
				case <-ended:
				default:
					t.Fatal("it goes on without a key")
				}
				if w.Code != http.StatusUnauthorized {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				if _, err := store.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("2")}}}); err != nil {
					t.Fatal(err)
				}
				if left, err := store.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil || len(left.Rollouts) != 1 {
					t.Errorf("the queue has %+v, %v", left, err)
				}
			})
		})
	}
}

// The answer that refuses an outdated client certificate ends its connection, in which another one cannot be shown. Others do not.
func TestConnectionsEndWithTheCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, err := New(Config{Store: memorytest.Open(t), Token: "s3cret", Certificates: access.Grants{"gpu-7": access.Runner}})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(of *x509.Certificate) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl/queues/rollouts/dequeue", strings.NewReader(`{"wait_seconds":60}`))
			if r.TLS = (&tls.ConnectionState{}); of != nil {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{of}}
			}
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			return w
		}
		shown := &x509.Certificate{Subject: pkix.Name{CommonName: "gpu-7"}, NotAfter: time.Now().Add(5 * time.Second)}
		began := time.Now()
		w := ask(shown)
		if waited := time.Since(began); w.Code != http.StatusUnauthorized || waited < 5*time.Second || waited > 7*time.Second {
			t.Errorf("a request that waits: %d after %s: %s", w.Code, waited, w.Body)
		}
		for name, w := range map[string]*httptest.ResponseRecorder{"waited": w, "came later": ask(shown)} {
			if w.Header().Get("Connection") != "close" || w.Header().Get("Agl-Certificate") != "outdated" || !strings.Contains(w.Body.String(), "has expired") {
				t.Errorf("%s: %v %s", name, w.Header(), w.Body)
			}
		}
		stranger := &x509.Certificate{Subject: pkix.Name{CommonName: "nobody"}, NotAfter: time.Now().Add(time.Hour)}
		for name, w := range map[string]*httptest.ResponseRecorder{"without scopes": ask(stranger), "none": ask(nil)} {
			if w.Code != http.StatusUnauthorized || w.Header().Get("Connection") != "" {
				t.Errorf("%s: %d %v", name, w.Code, w.Header())
			}
		}
	})
}

// waitingCollector collects nothing.
type waitingCollector struct{}

// Collect implements [agl.Collector].
func (waitingCollector) Collect(ctx context.Context, _ agl.CollectParams) (agl.Collection, error) {
	<-ctx.Done()
	return agl.Collection{}, ctx.Err()
}

// A caller has so many streams and requests that wait at once, and not more; others have as many.
func TestOpenRequestsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		keys := access.NewKeys(store)
		api, err := New(Config{Store: store, Token: "s3cret", Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		const most = 3
		api.shared.open = access.NewOpen(most)
		running, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}})
		if err != nil {
			t.Fatal(err)
		}
		who := map[string]string{"root": "s3cret"}
		for _, name := range []string{"a", "b"} {
			created, err := keys.Create(t.Context(), access.NewKey{Name: name, Scopes: access.Read})
			if err != nil {
				t.Fatal(err)
			}
			who[name] = created.Text
		}
		open := func(ctx context.Context, key, from string, i int) (*httptest.ResponseRecorder, chan struct{}) {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/agl/events", nil)
			if i%2 == 1 {
				r = httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/agl/waits/rollouts", strings.NewReader(`{"rollout_ids":["`+running.RolloutID+`"]}`))
			}
			r.RemoteAddr = from
			r.Header.Set("Authorization", "Bearer "+key)
			w, ended := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(ended)
				api.ServeHTTP(w, r)
			}()
			return w, ended
		}
		for range 2 { // what has ended makes room
			ctx, leave := context.WithCancel(t.Context())
			for name, key := range who {
				for i := range most + 2 {
					w, ended := open(ctx, key, "10.0.0.1:1", i)
					synctest.Wait()
					select {
					case <-ended:
						if i < most || w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "has 3 streams") {
							t.Errorf("%s, request %d: %d %s", name, i, w.Code, w.Body)
						}
					default:
						if i >= most {
							t.Errorf("%s: request %d is open", name, i)
						}
					}
				}
			}
			if _, ended := open(ctx, who["root"], "10.0.0.2:1", 0); true { // the token may be that of many programs
				synctest.Wait()
				select {
				case <-ended:
					t.Error("the token from another address is refused")
				default:
				}
			}
			leave()
			synctest.Wait()
		}
	})
}

// A caller gets so many lists in pieces at once.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	api, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	large := []byte(`"` + strings.Repeat("x", pagePiece) + `"`)
	for range 3 {
		if _, err := store.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: large}}}); err != nil {
			t.Fatal(err)
		}
	}
	list := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/rollouts?limit=-1", nil))
		return w
	}
	if w := list(); w.Code != http.StatusOK || w.Body.Len() < 3*pagePiece {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
	api.shared.lists = access.NewOpen(0) // others hold them
	if w := list(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}
