package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
)

// TestReleaseAnswers: a candidate's resources must be there, and an answer says what the
// evidence means, without the bounds that do not exist yet.
func TestReleaseAnswers(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	h := newServer(t, server.Config{Store: s})
	w := ask(t, h, http.MethodPost, "/v1/agl/releases", `{"candidate":{"resources_id":"rs-none"}}`)
	if w.Code/100 != 4 || !strings.Contains(w.Body.String(), `candidate.resources_id: got \"rs-none\"`) {
		t.Errorf("a candidate without resources: %d %s", w.Code, w.Body)
	}
	added, err := s.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{{Name: "p", Resource: agl.PromptTemplate{Template: "x", Engine: agl.PromptFString}}}})
	if err != nil {
		t.Fatal(err)
	}
	w = ask(t, h, http.MethodPost, "/v1/agl/releases", `{"candidate":{"resources_id":"`+added.ResourcesID+`"},"gates":{"guards":[{"metric":"tokens","tolerance":0.5,"relative":true}]}}`)
	var made struct {
		ID    string        `json:"id"`
		State release.State `json:"state"`
		Now   struct {
			Verdict release.Verdict  `json:"verdict"`
			Reward  *[2]float64      `json:"reward"`
			Guards  []jsontext.Value `json:"guards"`
		} `json:"now"`
	}
	if decode(t, w.Body.Bytes(), &made); w.Code != http.StatusCreated || made.ID == "" || made.State != release.StateCanary {
		t.Fatalf("propose: %d %s", w.Code, w.Body)
	}
	if made.Now.Verdict.Action != release.Wait || made.Now.Reward != nil || len(made.Now.Guards) != 1 ||
		string(made.Now.Guards[0]) != `{"metric":"tokens","sessions":[0,0],"means":[0,0],"difference":null}` {
		t.Errorf("now is %+v", made.Now)
	}
	var observed []release.Observation
	for i := range 400 {
		reward := float64(i % 7)
		observed = append(observed, release.Observation{
			Arm: release.Arm(i % 2), Share: 0.5, Reward: &reward, Metrics: map[string]float64{"tokens": float64(100 + i%5)},
		})
	}
	if _, err := release.New(s).Observe(t.Context(), made.ID, "", "1", observed); err != nil {
		t.Fatal(err)
	}
	made.Now.Reward = nil
	if decode(t, ask(t, h, http.MethodGet, "/v1/agl/releases/"+made.ID, "").Body.Bytes(), &made); made.Now.Reward == nil || made.Now.Reward[0] >= 0 || made.Now.Reward[1] <= 0 {
		t.Errorf("the difference of equal rewards is between %v", made.Now.Reward)
	}
	var guard struct {
		Means      [2]float64  `json:"means"`
		Difference *[2]float64 `json:"difference"`
	}
	if decode(t, made.Now.Guards[0], &guard); guard.Means[0] < 100 || guard.Means[0] > 104 || guard.Difference == nil || guard.Difference[1] >= 0 {
		t.Errorf("the guard says %s, want the stable mean without what is tolerated, and a difference below it", made.Now.Guards[0])
	}
}
