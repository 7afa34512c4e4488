package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// openTabs is how many tabs of the dashboard are open.
	openTabs = 10
	// The pause of a tab between two loads: at least refreshEvery, and loadPause times what the last took. They, and what the pages
	// ask, are those of dashboard/ui: hooks.js and pages.
	refreshEvery = 500 * time.Millisecond
	loadPause    = 4
	// A server is measured with tabs and without in turn, in windows, so that what changes on the machine changes both. Before each
	// window the tabs load their page, or what they asked for is answered.
	window = time.Second
	settle = 500 * time.Millisecond
)

// withTabs are ratios of a window with tabs to one without.
type withTabs struct {
	rollouts float64 // in the same time
	cpu      float64 // of the server, for a rollout
}

// windows opens and closes n tabs in turn for about as long as asked. Each pair of windows gives its ratios.
func windows(ctx context.Context, srv *server, n int, length time.Duration, rollouts *atomic.Int64) (all []withTabs, err error) {
	measure := func(tabs int) (rate, cpu float64, err error) {
		open := openOn(ctx, srv.urls[0], tabs)
		defer func() {
			loads, failure := open.close()
			if err = errors.Join(err, failure); err == nil && ctx.Err() == nil && loads < int64(tabs) {
				err = fmt.Errorf("%d tabs have loaded their data %d times", tabs, loads)
			}
		}()
		_ = backoff.Sleep(ctx, settle) // an end of ctx is reported by load
		spent, err := srv.process.CPU()
		if err != nil {
			return 0, 0, err
		}
		before, began := rollouts.Load(), time.Now()
		_ = backoff.Sleep(ctx, window)
		made, took := float64(rollouts.Load()-before), time.Since(began)
		if made == 0 && ctx.Err() == nil {
			return 0, 0, fmt.Errorf("no rollout was finished within %v", window)
		}
		after, err := srv.process.CPU()
		return made / took.Seconds(), (after - spent).Seconds() / made, err
	}
	for began := time.Now(); time.Since(began) < length && ctx.Err() == nil; {
		tabs := [2]int{n, 0}
		if len(all)%2 == 1 {
			tabs = [2]int{0, n}
		}
		rates, cpus := map[int]float64{}, map[int]float64{}
		for _, tabs := range tabs {
			if rates[tabs], cpus[tabs], err = measure(tabs); err != nil {
				return nil, err
			}
		}
		all = append(all, withTabs{rates[n] / rates[0], cpus[n] / cpus[0]})
	}
	return all, nil
}

// page is one of the dashboard's.
type page struct {
	kinds []string // of the events that concern it
	first []string // asked at first; changes of these are rare
	asks  []string // asked at every change
}

// pages are those of the tabs, in turn.
var pages = []page{
	{
		kinds: []string{"rollout", "queue", "worker"},
		first: []string{"resources?limit=1&sort_by=update_time&sort_order=desc", "rollouts?status_in=failed&sort_by=start_time&sort_order=desc&limit=8"},
		asks:  []string{"statistics", "statistics/rollouts", "workers?status_in=busy&limit=1", "statistics/calls"},
	},
	{kinds: []string{"rollout", "attempt", "spans"}, asks: []string{"rollouts?filter_logic=and&sort_by=start_time&sort_order=desc&limit=50&offset=0"}},
	{kinds: []string{"worker", "attempt"}, asks: []string{"workers?sort_by=worker_id&sort_order=asc&limit=50&offset=0"}},
	{kinds: []string{"rollout", "attempt", "spans"}, asks: []string{"rollouts?filter_logic=and&status_in=running&sort_by=start_time&sort_order=desc&limit=50&offset=0"}},
	{kinds: []string{"document"}, asks: []string{"runs?limit=50&offset=0"}},
}

// tabs are open tabs of the dashboard.
type tabs struct {
	cancel context.CancelFunc
	all    errgroup.Group
	loads  atomic.Int64
}

// openOn opens n tabs.
func openOn(ctx context.Context, url string, n int) *tabs {
	t := &tabs{}
	ctx, t.cancel = context.WithCancel(ctx)
	for i := range n {
		one := &tab{tabs: t, url: url, page: pages[i%len(pages)], http: &http.Transport{}, changed: make(chan struct{}, 1)}
		for _, do := range []func(context.Context) error{one.follow, one.show} {
			t.all.Go(func() error {
				if err := do(ctx); ctx.Err() == nil {
					return err
				}
				return nil
			})
		}
	}
	return t
}

// close closes the tabs and says how often they have loaded their data.
func (t *tabs) close() (int64, error) {
	t.cancel()
	err := t.all.Wait()
	return t.loads.Load(), err
}

// tab is one open tab.
type tab struct {
	*tabs

	url     string
	page    page
	http    *http.Transport
	changed chan struct{}
}

func (t *tab) open(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/v1/agl/"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := t.http.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("tab: %s: %s", path, answer.Status), answer.Body.Close())
	}
	return answer, err
}

// follow reads the event stream, and opens it again when it ends.
func (t *tab) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		answer, err := t.open(ctx, "events?every=0.5")
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			var event struct {
				Kind string `json:"kind"`
			}
			if !ok {
				continue
			}
			if err := rawjson.Unmarshal([]byte(data), &event); err != nil {
				return err
			}
			if event.Kind == "reset" || slices.Contains(t.page.kinds, event.Kind) {
				background.Wake(t.changed)
			}
		}
		answer.Body.Close()
	}
	return nil
}

// show loads the page's data at every change.
func (t *tab) show(ctx context.Context) error {
	asks := slices.Concat(t.page.first, t.page.asks)
	for {
		began := time.Now()
		if err := t.load(ctx, asks); err != nil {
			return err
		}
		asks = t.page.asks
		took := time.Since(began)
		if err := backoff.Sleep(ctx, max(refreshEvery-took, loadPause*took)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.changed:
		}
	}
}

// load makes all requests at once, as the page does.
func (t *tab) load(ctx context.Context, paths []string) error {
	var all errgroup.Group
	for _, path := range paths {
		all.Go(func() error {
			_, err := bench.Ask(ctx, t.http, http.MethodGet, t.url+"/v1/agl/"+path, nil)
			return err
		})
	}
	err := all.Wait()
	t.loads.Add(1)
	return err
}
