package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/memnet"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// manyItems is a store whose lists have so many items of 100 KB.
type manyItems struct {
	agl.UnimplementedStore
	agl.Runs

	total int
	fail  int // reading from this one on fails; 0 is none
}

func (m *manyItems) Capabilities() agl.Capabilities { return agl.Capabilities{QuerySpansJSON: true} }

const itemSize = 100 << 10

func itemsOf[T any](m *manyItems, p agl.Paging, one func(i int, doc jsontext.Value) T) (agl.Page[T], error) {
	page := agl.Page[T]{Limit: p.Limit, Offset: p.Offset, Total: m.total}
	end := m.total
	if p.Limit > 0 {
		end = min(end, p.Offset+p.Limit)
	}
	if m.fail > 0 && end > m.fail {
		return page, agl.Errorf(agl.CodeUnavailable, "the database is away")
	}
	for i := p.Offset; i < end; i++ {
		page.Items = append(page.Items, one(i, fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, i, strings.Repeat("x", itemSize))))
	}
	return page, nil
}

func (m *manyItems) QuerySpansJSON(_ context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	return itemsOf(m, p.Paging, func(_ int, doc jsontext.Value) jsontext.Value { return doc })
}

func (m *manyItems) QueryRollouts(_ context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	behind := 0
	if p.After != "" {
		last, err := strconv.Atoi(p.After)
		if err != nil {
			return agl.Page[agl.AttemptedRollout]{}, err
		}
		p.Offset += last + 1
		behind = last + 1
	}
	page, err := itemsOf(m, p.Paging, func(i int, doc jsontext.Value) agl.AttemptedRollout {
		return agl.AttemptedRollout{Rollout: agl.Rollout{RolloutID: strconv.Itoa(i), Input: doc}}
	})
	page.Total -= behind
	return page, err
}

func (m *manyItems) QueryAttempts(_ context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return itemsOf(m, p.Paging, func(i int, doc jsontext.Value) agl.Attempt {
		return agl.Attempt{AttemptID: strconv.Itoa(i), Metadata: doc}
	})
}

func (m *manyItems) QueryResources(_ context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	return itemsOf(m, p.Paging, func(i int, doc jsontext.Value) agl.ResourcesUpdate {
		return agl.ResourcesUpdate{ResourcesID: strconv.Itoa(i), Resources: agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: string(doc)}}}}
	})
}

func (m *manyItems) QueryWorkers(_ context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	return itemsOf(m, p.Paging, func(i int, doc jsontext.Value) agl.Worker {
		return agl.Worker{WorkerID: strconv.Itoa(i), HeartbeatStats: doc}
	})
}

func (m *manyItems) QueryRuns(_ context.Context, p agl.QueryRunsParams) (agl.Page[agl.Run], error) {
	return itemsOf(m, agl.Paging{Limit: p.Limit, Offset: p.Offset}, func(i int, doc jsontext.Value) agl.Run {
		return agl.Run{RunID: strconv.Itoa(i), Metadata: doc}
	})
}

func (m *manyItems) QueryRunMetrics(_ context.Context, p agl.QueryRunMetricsParams) (agl.Page[agl.RunMetrics], error) {
	return itemsOf(m, agl.Paging{Limit: p.Limit, Offset: p.Offset}, func(i int, doc jsontext.Value) agl.RunMetrics {
		return agl.RunMetrics{Step: i, Values: map[string]float64{string(doc): 1}}
	})
}

// serveItems serves a store. ask sends a request over a connection of its own.
func serveItems(t *testing.T, store agl.Store) (ask func(path string) *http.Response) {
	t.Helper()
	listener := memnet.Listen()
	web := httpserver.New(newServer(t, server.Config{Store: store}), slog.New(slog.DiscardHandler))
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(listener) })
	t.Cleanup(func() {
		_ = web.Close()
		serving.Wait()
	})
	return func(path string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://store/v1/agl/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Transport{DialContext: listener.Dial, DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
}

// All items of a list are sent in pieces, as they are read: whoever reads slowly keeps a piece in
// memory, not all of them. It does not matter whether all are asked for by -1 or by a large limit.
func TestListsInPieces(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	if testing.Short() {
		t.Skip("the race detector takes minutes for it; TestAllSpansInPieces has the same goroutines")
	}
	for _, path := range []string{
		"rollouts?limit=-1", "rollouts?limit=100000", "rollouts?limit=-1&sort_by=start_time&sort_order=desc", "rollouts?limit=-1&sort_by=status", "rollouts?limit=9223372036854775806&sort_by=status",
		"rollouts/ro-1/attempts?limit=-1", "resources?limit=-1", "resources?limit=-1&sort_by=update_time", "workers?limit=-1",
		"runs?limit=-1", "runs/ru-1/metrics?limit=-1",
		"spans?rollout_id=ro-1&limit=100000", "spans?rollout_id=ro-1&limit=-1&sort_by=sequence_id&sort_order=desc", "spans?rollout_id=ro-1&limit=-1&sort_by=name",
	} {
		t.Run(path, func(t *testing.T) { //nolint:paralleltest // as above
			synctest.Test(t, func(t *testing.T) {
				const total = 1000                             // 100 MB
				ask := serveItems(t, &manyItems{total: total}) //nolint:bodyclose // each answer is closed below
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				var stuck []*http.Response
				for range 6 {
					stuck = append(stuck, ask(path)) //nolint:bodyclose // below
				}
				synctest.Wait() // all of them wait for their readers
				runtime.GC()
				runtime.ReadMemStats(&after)
				if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > 100<<20 {
					t.Errorf("six readers of 100 MB take %d MB", took>>20)
				}
				for _, res := range stuck[1:] {
					res.Body.Close()
				}
				var got struct {
					Items []jsontext.Value `json:"items"`
					Total int              `json:"total"`
				}
				if err := json.UnmarshalRead(stuck[0].Body, &got); err != nil || len(got.Items) != total || got.Total != total {
					t.Errorf("got %d items of %d, %v, want %d", len(got.Items), got.Total, err, total)
				}
				stuck[0].Body.Close()
			})
		})
	}
}

// moving is a store of rollouts that change their places while they are read.
type moving struct {
	agl.UnimplementedStore

	ids   []string
	reads int
	move  func(m *moving) // after each read
}

func (m *moving) QueryRollouts(_ context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	page := agl.Page[agl.AttemptedRollout]{Limit: p.Limit, Offset: p.Offset, Total: len(m.ids)}
	from := min(p.Offset, len(m.ids))
	if p.After != "" {
		from += slices.Index(m.ids, p.After) + 1
		page.Total -= from
	}
	to := len(m.ids)
	if p.Limit > 0 {
		to = min(to, from+p.Limit)
	}
	for _, id := range m.ids[from:to] {
		page.Items = append(page.Items, agl.AttemptedRollout{Rollout: agl.Rollout{RolloutID: id, Input: jsontext.Value(`"` + strings.Repeat("x", itemSize) + `"`)}})
	}
	m.reads++
	m.move(m)
	return page, nil
}

// deleting is a store that deletes the last rollouts of the first page that is read.
type deleting struct {
	agl.Store

	most    int
	pages   int
	deleted []string
}

func (d *deleting) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	page, err := d.Store.QueryRollouts(ctx, p)
	if d.pages++; d.pages > 1 || err != nil {
		return page, err
	}
	for _, r := range page.Items[max(len(page.Items)-d.most, 0):] {
		if _, err := d.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: r.RolloutID}); err != nil {
			return page, err
		}
		if err := d.DeleteRollout(ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID}); err != nil {
			return page, err
		}
		d.deleted = append(d.deleted, r.RolloutID)
	}
	return page, nil
}

// A list goes on although the rollout after which it has to be read on is deleted while it is sent.
func TestListsWhoseLastItemIsDeleted(t *testing.T) {
	t.Parallel()
	for order, most := range map[string]int{"": 2, "&limit=299": 1000, "&sort_by=start_time": 2, "&sort_by=start_time&sort_order=desc": 1000} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			d := &deleting{Store: memorytest.Open(t), most: most}
			inputs := make([]string, 300)
			for i := range inputs {
				inputs[i] = strconv.Itoa(i)
			}
			want := enqueue(t, d, inputs...)
			if strings.HasPrefix(order, "&limit") {
				want = want[:299]
			}
			if strings.HasSuffix(order, "desc") { // all have the same start time, so that the order by creation remains
				slices.Sort(want)
			}
			w := ask(t, newServer(t, server.Config{Store: d}), "GET", "/v1/agl/rollouts?limit=-1"+order, "")
			var got struct {
				Items []agl.Rollout `json:"items"`
				Total int           `json:"total"`
			}
			decode(t, w.Body.Bytes(), &got)
			ids := make([]string, len(got.Items))
			for i := range got.Items {
				ids[i] = got.Items[i].RolloutID
			}
			if strings.HasSuffix(order, "desc") {
				slices.Sort(ids)
			}
			if !slices.Equal(ids, want) || got.Total != len(inputs) || len(d.deleted) < 2 {
				t.Errorf("got %d rollouts of %d, want the %d that were there when the list began; %.300s", len(ids), got.Total, len(want), w.Body)
			}
		})
	}
}

// Rollouts that are there all the time are in the answer, and once, whatever comes, goes or changes
// its place while the answer is sent.
func TestListsThatChange(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(*moving){
		"one comes first": func(m *moving) { m.ids = slices.Insert(m.ids, 0, fmt.Sprintf("new-%d", m.reads)) },
		"one goes": func(m *moving) {
			if i := slices.Index(m.ids, fmt.Sprintf("old-%d", m.reads)); i >= 0 {
				m.ids = slices.Delete(m.ids, i, i+1)
			}
		},
		"the last becomes the first": func(m *moving) {
			if m.reads < 4 {
				last := len(m.ids) - 1
				m.ids = append(m.ids[last:], m.ids[:last]...)
			}
		},
		"nothing": func(*moving) {},
	} {
		for _, order := range []string{"", "&sort_by=status"} {
			t.Run(name+order, func(t *testing.T) {
				t.Parallel()
				if order == "" && name == "the last becomes the first" {
					t.Skip("creation has one order")
				}
				m := &moving{move: move}
				for i := range 200 {
					prefix := "kept"
					if i%2 == 1 {
						prefix = "old"
					}
					m.ids = append(m.ids, fmt.Sprintf("%s-%d", prefix, i))
				}
				s := newServer(t, server.Config{Store: m})
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/rollouts?limit=-1"+order, nil)
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				var got struct {
					Items []struct {
						RolloutID string `json:"rollout_id"`
					} `json:"items"`
				}
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
				times := map[string]int{}
				for _, item := range got.Items {
					if times[item.RolloutID]++; times[item.RolloutID] > 1 {
						t.Errorf("%s is there twice", item.RolloutID)
					}
				}
				for i := 0; i < 200; i += 2 {
					if id := fmt.Sprintf("kept-%d", i); times[id] != 1 {
						t.Errorf("%s is missing", id)
					}
				}
				if m.reads < 3 {
					t.Errorf("%d reads: the list was not read in pieces", m.reads)
				}
			})
		}
	}
}

// late is a store that gets another span, with an earlier sequence id, after the first page was read.
type late struct {
	agl.Store

	span  agl.Span
	pages int
}

func (l *late) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	page, err := l.Store.QuerySpansJSON(ctx, p)
	if l.pages++; l.pages == 1 && err == nil {
		_, err = l.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{l.span}})
	}
	return page, err
}

// A span whose sequence id was reserved before those that are stored already moves them, and none is sent twice.
func TestSpansThatComeLate(t *testing.T) {
	t.Parallel()
	l := &late{Store: memorytest.Open(t)}
	r, err := l.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	span := func(sequence int64) agl.Span {
		return agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: strconv.FormatInt(sequence, 10), SequenceID: sequence}
	}
	l.span = span(1)
	var spans []agl.Span
	for i := range int64(300) {
		spans = append(spans, span(i+2))
	}
	if _, err := l.AddSpans(t.Context(), agl.AddSpansParams{Spans: spans}); err != nil {
		t.Fatal(err)
	}
	w := ask(t, newServer(t, server.Config{Store: l}), "GET", "/v1/agl/spans?limit=-1&rollout_id="+r.RolloutID, "")
	var got struct {
		Items []agl.Span `json:"items"`
	}
	decode(t, w.Body.Bytes(), &got)
	for i, s := range got.Items {
		if s.SequenceID != int64(i+2) {
			t.Fatalf("span %d is %d", i, s.SequenceID)
		}
	}
	if len(got.Items) != len(spans) || l.pages < 2 {
		t.Errorf("got %d spans in %d pages, want the %d that were there, in several", len(got.Items), l.pages, len(spans))
	}
}

// Who does not read at all is cut off, and so is an answer whose rest cannot be read.
func TestAllSpansInPieces(t *testing.T) { //nolint:paralleltest // its answers take much memory
	synctest.Test(t, func(t *testing.T) {
		const total = 2000 // 200 MB
		store := &manyItems{total: total}
		asks := serveItems(t, store) //nolint:bodyclose // each answer is closed below
		ask := func(query string) *http.Response { return asks("spans?rollout_id=ro-1" + query) }
		var stuck []*http.Response
		for range 6 {
			stuck = append(stuck, ask("&limit=-1")) //nolint:bodyclose // below
		}

		res := ask("&limit=-1&offset=3")
		in := jsontext.NewDecoder(res.Body)
		for _, want := range []string{"{", `"items"`, "["} {
			if token, err := in.ReadToken(); err != nil || token.String() != strings.Trim(want, `"`) {
				t.Fatalf("got %s, %v, want %s", token, err, want)
			}
		}
		for i := 3; i < total; i++ {
			var item struct {
				N int `json:"n"`
			}
			if err := json.UnmarshalDecode(in, &item); err != nil || item.N != i {
				t.Fatalf("span %d is %d, %v", i, item.N, err)
			}
		}
		if rest := readAll(t, io.MultiReader(strings.NewReader(string(in.UnreadBuffer())), res.Body)); rest != `],"limit":-1,"offset":3,"total":2000}` {
			t.Errorf("the answer ends with %s", rest)
		}
		res.Body.Close()

		time.Sleep(31 * time.Second)
		for _, res := range stuck {
			if n, err := io.Copy(io.Discard, res.Body); !errors.Is(err, io.ErrUnexpectedEOF) || n > 10<<20 {
				t.Errorf("who has not read for half a minute then gets %d bytes, %v", n, err)
			}
			res.Body.Close()
		}

		store.fail = 300
		res = ask("&limit=-1")
		if n, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Errorf("%d bytes of an answer that is cut look like all", n)
		}
		res.Body.Close()
	})
}
