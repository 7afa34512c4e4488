package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// watched are releases whose reader can be waited for.
type watched struct {
	*release.Releases

	mu   sync.Mutex
	read *sync.Cond
	n    int
}

func watch(r *release.Releases) *watched {
	w := &watched{Releases: r}
	w.read = sync.NewCond(&w.mu)
	return w
}

func (w *watched) CurrentRelease(ctx context.Context) (release.Current, error) {
	current, err := w.Releases.CurrentRelease(ctx)
	w.mu.Lock()
	w.n++
	w.read.Broadcast()
	w.mu.Unlock()
	return current, err
}

// await returns when the reader acts by what is current now. Its next answer may have been read before,
// and the one after that is acted by when it asks again.
func (w *watched) await() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for until := w.n + 3; w.n < until; {
		w.read.Wait()
	}
}

// A release gives its share of the sessions to the candidate, each from its beginning to its end, at
// two proxies of one store; promotion and rollback reach new sessions only.
func TestReleases(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	releases := release.New(store)
	followers := []*watched{watch(releases), watch(releases)} // of each proxy
	await := func() {
		for _, one := range followers {
			one.await()
		}
	}
	var backends []proxy.Model
	for _, name := range []string{"support", "support-v2"} {
		model := serve(t, proxytest.VLLM(func(string, int) string { return name }))
		backends = append(backends, proxy.Model{Name: name, BaseURL: model.BaseURL()})
	}
	var proxies []live
	for _, follower := range followers {
		proxies = append(proxies, startLive(t, store, func(c *proxy.Config) {
			c.Models, c.Sessions.Releases = backends, follower
		}))
	}
	const body = `{"model":"support","messages":[{"role":"user","content":"hi"}]}`
	ask := func(n int, header ...string) (who, rollout string) {
		t.Helper()
		answer, rollout := proxies[n%2].call(t, completions, body, http.StatusOK, header...)
		return fmt.Sprint(answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"]), rollout
	}
	before, _ := ask(0, "X-Agl-Session", "open before")
	if before != "support" {
		t.Fatalf("without a release %s answers", before)
	}
	r, err := releases.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{Model: "support-v2"}, Model: "support", Share: 0.5, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	await()
	served := map[string]string{} // by the session
	counts := map[string]int{}
	for n := range 60 {
		name := fmt.Sprint("chat-", n)
		who, rollout := ask(n, "X-Agl-Session", name)
		served[name] = who
		counts[who]++
		stored, err := store.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: rollout})
		if err != nil {
			t.Fatal(err)
		}
		metadata := agl.Attributes(stored.Metadata)
		arm, _ := metadata.GetString(release.MetadataArm)
		id, _ := metadata.GetString(release.MetadataRelease)
		share, _ := metadata.GetFloat(release.MetadataShare)
		if want := map[string]string{"support": "stable", "support-v2": "candidate"}[who]; arm != want || id != r.ID || share != 0.5 {
			t.Errorf("%s was answered by %s: the metadata are %s", name, who, stored.Metadata)
		}
	}
	if counts["support"] < 12 || counts["support-v2"] < 12 { // by chance once in a million runs
		t.Errorf("the sessions were served by %v, want about half each", counts)
	}
	for _, user := range []string{"ada", "bob", "eve"} { // a user gets the same in every session
		one, _ := ask(0, "X-Agl-Session", user+" 1", "X-Agl-User", user)
		two, _ := ask(1, "X-Agl-Session", user+" 2", "X-Agl-User", user)
		if one != two {
			t.Errorf("%s is served by %s and %s", user, one, two)
		}
	}
	if who, _ := ask(0); who != "support" {
		t.Errorf("a call without a session is answered by %s", who)
	}
	stays := func(when string) {
		t.Helper()
		if who, _ := ask(1, "X-Agl-Session", "open before"); who != before {
			t.Errorf("%s: a session that began before the release is served by %s", when, who)
		}
		for n := range 60 { // at the other proxy than before
			name := fmt.Sprint("chat-", n)
			if who, _ := ask(n+1, "X-Agl-Session", name); who != served[name] {
				t.Errorf("%s: %s began with %s and is served by %s", when, name, served[name], who)
			}
		}
	}
	for _, step := range []struct {
		act  release.Act
		want string
	}{{release.ActPromote, "support-v2"}, {release.ActRollback, "support"}} {
		if _, err := releases.Do(t.Context(), r.ID, step.act, "test", ""); err != nil {
			t.Fatal(err)
		}
		await()
		stays(string(step.act))
		for n := range 4 {
			if who, _ := ask(n, "X-Agl-Session", fmt.Sprint("after ", step.act, n)); who != step.want {
				t.Errorf("after the %s a new session is served by %s", step.act, who)
			}
		}
		if who, _ := ask(1); who != step.want {
			t.Errorf("after the %s a call without a session is answered by %s", step.act, who)
		}
	}
}

// A rollback takes no stream away: those that the candidate has begun end whole and with its words, while new sessions are served by
// stable at once, and the sessions of these streams go on with the candidate.
func TestRollbackUnderStreams(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	releases := release.New(store)
	follower := watch(releases)
	goOn := make(chan struct{})
	var models []proxy.Model
	for _, name := range []string{"support", "support-v2"} {
		whole := proxytest.VLLM(func(string, int) string { return name })
		model := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
			if !bytes.Contains(r.Body, []byte(`"stream":true`)) {
				return whole(ctx, r)
			}
			step := func(ctx context.Context, i int) error {
				if i == 0 {
					return nil
				}
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			return proxytest.Reply{ContentType: "text/event-stream", Pieces: streamOf(name, name), Step: step}
		})
		models = append(models, proxy.Model{Name: name, BaseURL: model.BaseURL()})
	}
	p := startLive(t, store, func(c *proxy.Config) { c.Models, c.Sessions.Releases = models, follower })
	r, err := releases.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{Model: "support-v2"}, Model: "support", Share: 0.5, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	follower.await()
	type stream struct {
		session, first string
		rest           *bufio.Reader
	}
	var streams []stream
	for n := range 20 {
		s := stream{session: fmt.Sprint("chat-", n)}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+completions, strings.NewReader(`{"model":"support","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Agl-Session", s.session)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		s.rest = bufio.NewReader(res.Body)
		if s.first, err = s.rest.ReadString('\n'); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s began with %d %q, %v", s.session, res.StatusCode, s.first, err)
		}
		streams = append(streams, s)
	}
	if _, err := releases.Do(t.Context(), r.ID, release.ActRollback, "test", ""); err != nil {
		t.Fatal(err)
	}
	follower.await()
	ask := func(session string) string {
		t.Helper()
		answer, _ := p.call(t, completions, `{"model":"support","messages":[{"role":"user","content":"hi"}]}`, http.StatusOK, "X-Agl-Session", session)
		return fmt.Sprint(answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"])
	}
	for n := range 8 {
		if who := ask(fmt.Sprint("after-", n)); who != "support" {
			t.Errorf("after the rollback a new session is served by %s", who)
		}
	}
	close(goOn)
	candidates := 0
	for _, s := range streams {
		rest, err := io.ReadAll(s.rest)
		who, other := "support", "support-v2"
		if strings.Contains(s.first, "support-v2 ") {
			who, other = other, who
			candidates++
		}
		if err != nil || !strings.Contains(string(rest), `"`+who+` "`) || strings.Contains(string(rest), `"`+other+` "`) || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Errorf("%s began with %q and went on with %q, %v", s.session, s.first, rest, err)
		}
		if now := ask(s.session); now != who {
			t.Errorf("%s began with %s and is served by %s", s.session, who, now)
		}
	}
	if candidates == 0 || candidates == len(streams) {
		t.Errorf("the candidate has served %d of %d streams", candidates, len(streams))
	}
}

// Sessions whose model is no longer served, such as a candidate that was taken away after its rollback, go on with what is stable. A call that
// cannot be recorded is answered by what is stable, too. What is not served is logged once.
func TestModelOfReleaseIsGone(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	releases := release.New(store)
	follower := watch(releases)
	var models []proxy.Model
	for _, name := range []string{"support", "support-v2", "support-v3"} {
		model := serve(t, proxytest.VLLM(func(string, int) string { return name }))
		models = append(models, proxy.Model{Name: name, BaseURL: model.BaseURL()})
	}
	var log lockedBuffer
	sessions := &refusing{Store: store}
	p := startLive(t, store, func(c *proxy.Config) {
		c.Models, c.Sessions.Releases, c.Sessions.Store, c.Logger = models, follower, sessions, slog.New(slog.NewTextHandler(&log, nil))
	})
	ask := func(header ...string) string {
		t.Helper()
		answer, _ := p.call(t, completions, `{"model":"support","messages":[{"role":"user","content":"hi"}]}`, http.StatusOK, header...)
		return fmt.Sprint(answer["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"])
	}
	act := func(r release.Release, act release.Act) {
		t.Helper()
		if _, err := releases.Do(t.Context(), r.ID, act, "test", ""); err != nil {
			t.Fatal(err)
		}
		follower.await()
	}
	propose := func(model string) release.Release {
		t.Helper()
		r, err := releases.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{Model: model}, Model: "support", Share: 0.5, By: "test"})
		if err != nil {
			t.Fatal(err)
		}
		follower.await()
		return r
	}
	act(propose("support-v2"), release.ActPromote)
	third := propose("support-v3")
	served := map[string]string{}
	for n := range 20 {
		name := fmt.Sprint("chat-", n)
		served[name] = ask("X-Agl-Session", name)
	}
	act(third, release.ActRollback)
	if err := p.Reload(models[:2], proxy.Control{}); err != nil {
		t.Fatal(err)
	}
	for name, before := range served {
		if who := ask("X-Agl-Session", name); who != "support-v2" {
			t.Errorf("%s began with %s and is served by %s, want support-v2", name, before, who)
		}
	}
	sessions.refuse.Store(true)
	if who := ask("X-Agl-Session", "cannot be recorded"); who != "support-v2" {
		t.Errorf("while the store is away %s answers, want support-v2", who)
	}
	sessions.refuse.Store(false)
	if err := p.Reload(models[:1], proxy.Control{}); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if who := ask("X-Agl-Session", fmt.Sprint("new-", n)); who != "support" {
			t.Errorf("without the promoted model %s answers, want support", who)
		}
	}
	propose("support-v4")
	for n := range 5 {
		ask("X-Agl-Session", fmt.Sprint("newer-", n))
	}
	for message, want := range map[string]int{"no longer serves the model of running sessions": 1, "does not serve a model that a release has promoted": 2, "does not serve the candidate of a release": 1} {
		if got := strings.Count(log.String(), message); got != want {
			t.Errorf("%q was logged %d times, want %d; the log:\n%s", message, got, want, log.String())
		}
	}
}

// refusing is a store of sessions that starts none while it refuses.
type refusing struct {
	agl.Store
	refuse atomic.Bool
}

func (r *refusing) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	if r.refuse.Load() {
		return agl.AttemptedRollout{}, agl.Errorf(agl.CodeUnavailable, "the store is away")
	}
	return r.Store.StartRollout(ctx, p)
}

// absentReleases are those of a project that is archived, until it comes back.
type absentReleases struct{ back atomic.Bool }

func (r *absentReleases) CurrentRelease(context.Context) (release.Current, error) {
	if !r.back.Load() {
		return release.Current{}, agl.Errorf(agl.CodeNotFound, "project p is archived")
	}
	return release.Current{Model: "m", Stable: release.Version{Model: "promoted"}}, nil
}

// A store that has no releases for a while is asked again: an archived project comes back, an old server is upgraded.
func TestReleasesComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		releases := &absentReleases{}
		p := unplugged(t, func(r *http.Request) (string, error) { return completion(r.URL.Host, nil, nil), nil }, &spans{}, func(c *proxy.Config) {
			c.Models = append(c.Models, proxy.Model{Name: "promoted", BaseURL: "http://promoted/v1"})
			c.Sessions = proxy.Sessions{Store: memorytest.Open(t), Releases: releases, IdleTimeout: time.Hour}
		})
		for _, want := range []string{"backend", "promoted"} {
			releases.back.Store(want == "promoted")
			time.Sleep(time.Minute)
			if w := call(t.Context(), p, completions); !strings.Contains(w.Body.String(), want) {
				t.Errorf("got %s, want the answer of %s", w.Body, want)
			}
		}
		closed(t, p)
	})
}
