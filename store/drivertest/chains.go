package drivertest

import (
	"fmt"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func chainTests() map[string]func(*harness) {
	return map[string]func(*harness){
		"spans that continue others": testChains,
	}
}

// testChains stores spans with bases. Their payloads are arbitrary bytes, because a driver does
// not read them.
func testChains(d *harness) {
	one, two := attempt("r", 1, agl.AttemptFailed, ""), attempt("r", 2, agl.AttemptRunning, "")
	var spans []driver.SpanRecord
	add := func(a *agl.Attempt, id, base, payload string) {
		s := spanOf(a, id, int64(len(spans)+1))
		s.Base, s.Payload = base, []byte(payload)
		spans = append(spans, s)
	}
	add(one, "a", "", `{"whole":1}`)
	add(one, "b", "a", "\x01\x00b\n\xff")
	add(one, "c", "b", "\x01c")
	add(one, "d", "b", "\x01d")
	add(two, "a", "", `{"whole":2}`)
	add(two, "b", "a", "\x02b")
	d.apply(driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(one, two), Spans: spans})
	text := func(s driver.StoredSpan) string {
		return fmt.Sprintf("%s/%s %q %q", s.AttemptID, s.SpanID, s.Base, s.Payload)
	}
	all := make([]string, len(spans))
	for i, s := range spans {
		all[i] = text(driver.StoredSpan{SpanKey: s.SpanKey, Base: s.Base, Payload: s.Payload})
	}
	page := must(d.QuerySpans(d.ctx, agl.QuerySpansParams{RolloutID: "r", Paging: agl.Paging{Limit: -1}}))(d)
	var got []string
	for _, s := range page.Items {
		equal(d, "rollout", s.RolloutID, "r")
		got = append(got, text(s))
	}
	equal(d, "query", fmt.Sprint(got), fmt.Sprint(all))
	got = nil
	for r := range d.records() {
		if r.Span != nil {
			got = append(got, text(driver.StoredSpan{SpanKey: r.Span.SpanKey, Base: r.Span.Base, Payload: r.Span.Payload}))
		}
	}
	equal(d, "export", fmt.Sprint(got), fmt.Sprint(all))
	for _, test := range []struct {
		attempt *agl.Attempt
		ids     []string
		want    []string
	}{
		{one, []string{"c"}, []string{all[0], all[1], all[2]}},
		{one, []string{"d", "c", "d"}, []string{all[0], all[1], all[2], all[3]}},
		{one, []string{"a"}, all[:1]},
		{two, []string{"b"}, all[4:]},
		{two, []string{"c", "nope", ""}, nil},
		{attempt("r", 3, agl.AttemptRunning, ""), []string{"a"}, nil},
		{attempt("nope", 1, agl.AttemptRunning, ""), []string{"a"}, nil},
		{one, nil, nil},
	} {
		chain := must(d.SpanChains(d.ctx, driver.AttemptKey{RolloutID: test.attempt.RolloutID, AttemptID: test.attempt.AttemptID}, test.ids))(d)
		got := []string{}
		for _, s := range chain {
			got = append(got, text(s))
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(test.want))
		equal(d, fmt.Sprintf("chains of %s/%s %q", test.attempt.RolloutID, test.attempt.AttemptID, test.ids), fmt.Sprint(got), fmt.Sprint(want))
	}
}
