package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
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
)

// manySpans is a store whose rollouts have so many spans of 100 KB.
type manySpans struct {
	agl.UnimplementedStore

	total int
	fail  int // reading from this one on fails; 0 is none
}

func (m *manySpans) Capabilities() agl.Capabilities { return agl.Capabilities{QuerySpansJSON: true} }

func (m *manySpans) QuerySpansJSON(_ context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	page := agl.Page[jsontext.Value]{Limit: p.Limit, Offset: p.Offset, Total: m.total}
	end := m.total
	if p.Limit > 0 {
		end = min(end, p.Offset+p.Limit)
	}
	if m.fail > 0 && end > m.fail {
		return page, agl.Errorf(agl.CodeUnavailable, "the database is away")
	}
	for i := p.Offset; i < end; i++ {
		page.Items = append(page.Items, fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 100<<10)))
	}
	return page, nil
}

// All spans of a rollout are sent in pieces, as they are read: whoever reads slowly keeps a piece
// in memory, not all of them, and whoever does not read at all is cut off.
func TestAllSpansInPieces(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	synctest.Test(t, func(t *testing.T) {
		const total = 2000 // 200 MB
		store := &manySpans{total: total}
		listener := memnet.Listen()
		web := httpserver.New(newServer(t, server.Config{Store: store}), slog.New(slog.DiscardHandler))
		var serving sync.WaitGroup
		serving.Go(func() { _ = web.Serve(listener) })
		defer serving.Wait()
		defer web.Close()
		ask := func(query string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://store/v1/agl/spans?rollout_id=ro-1"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := (&http.Transport{DialContext: listener.Dial, DisableKeepAlives: true}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var stuck []*http.Response
		for range 6 {
			stuck = append(stuck, ask("&limit=-1")) //nolint:bodyclose // below
		}
		synctest.Wait() // all of them wait for their readers
		runtime.GC()
		runtime.ReadMemStats(&after)
		if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > 100<<20 {
			t.Errorf("six readers of 200 MB take %d MB", took>>20)
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

		store.fail = 100
		res = ask("&limit=-1")
		if n, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Errorf("%d bytes of an answer that is cut look like all", n)
		}
		res.Body.Close()
	})
}
