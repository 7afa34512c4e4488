package engine

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/tinker"
)

// TestPublisherPins: a version is served beside newer ones as long as rollouts are pinned to it, and the one before always is.
func TestPublisherPins(t *testing.T) {
	t.Parallel()
	e := tiny(t)
	listed := &models{}
	publishers := e.Publishers(listed, []string{"solver", "critic"}, proxy.Model{Name: "judge", BaseURL: "http://judge.example/v1"})
	path, err := e.Snapshot(t.Context(), tinker.CreateModelParams{Seed: 1}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		resources    string
		pinned       []string
		want, served string
	}{
		{"", nil, "solver=0", "0"}, // weights from before the first resources
		{"r1", []string{"", "r1"}, "solver=r1 solver=r1@r1", "0 r1"},
		{"r2", []string{"r1", "r1", "r2"}, "solver=r2 solver=r1@r1 solver=r2@r2", "r1 r2"},
		{"r3", []string{"r1", "r2", "r3"}, "solver=r3 solver=r1@r1 solver=r2@r2 solver=r3@r3", "r1 r2 r3"},
		{"r4", []string{"r1", "r3", "r4"}, "solver=r4 solver=r1@r1 solver=r3@r3 solver=r4@r4", "r1 r3 r4"},
		{"r5", []string{"r2", "r4", "r5"}, "solver=r5 solver=r4@r4 solver=r5@r5", "r4 r5"}, // r2 is gone
		{"r6", nil, "solver=r6", "r5 r6"},
		{"r7", []string{"v>r5"}, "solver=r7 solver=r5@v", "r5 r6 r7"}, // rollouts of other resources keep r5
		{"r8", []string{"v>r5"}, "solver=r8 solver=r5@v", "r5 r7 r8"},
		{"r8", []string{"v>r8"}, "solver=r8 solver=r8@v", "r7 r8"}, // the same again
		{"r9", nil, "solver=r9", "r8 r9"},
	} {
		for i, suffix := range []string{"", ".critic"} {
			pinned := map[string]string{}
			for _, resources := range step.pinned {
				name, of, ok := strings.Cut(resources, ">")
				if !ok {
					of = name
				}
				pinned[name] = of
			}
			version := step.resources + suffix
			if step.resources == "" {
				version = "0" + suffix
			}
			if err := publishers[i].Publish(t.Context(), algorithm.Publication{Snapshot: path, Version: version, ResourcesID: step.resources, Pinned: pinned}); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.ReplaceAll(step.want, "solver=", "") // of each role
		for name, suffix := range map[string]string{"solver": "", "critic": ".critic"} {
			var got []string
			for _, m := range listed.list {
				if m.Name != name {
					continue
				}
				if m.BackendModel != m.Version || !strings.HasSuffix(m.Version, suffix) {
					t.Errorf("after %q: %+v", step.resources, m)
				}
				one := strings.TrimSuffix(m.Version, suffix)
				if m.Resources != "" {
					one += "@" + m.Resources
				}
				got = append(got, one)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("after %q the proxy has %q of %s, want %q", step.resources, got, name, want)
			}
		}
		if !slices.ContainsFunc(listed.list, func(m proxy.Model) bool { return m.Name == "judge" }) {
			t.Errorf("after %q the judge is gone", step.resources)
		}
		var served []string
		for _, id := range chatModels(t, e) {
			if !strings.HasSuffix(id, ".critic") {
				served = append(served, id)
			}
		}
		if got := strings.Join(served, " "); got != step.served || len(chatModels(t, e)) != 2*len(served) {
			t.Errorf("after %q the engine serves %q, want %q and as many of the critic", step.resources, chatModels(t, e), step.served)
		}
	}
}

// chatModels are the models that the engine serves, in order.
func chatModels(t *testing.T, e *Engine) (ids []string) {
	t.Helper()
	recorded := httptest.NewRecorder()
	e.Handler().ServeHTTP(recorded, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", http.NoBody))
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(recorded.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}
