package drivertest

import (
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func documentTests() map[string]func(*harness) {
	return map[string]func(*harness){
		"documents byte for byte": testDocuments,
		"strings of all kinds":    testStrings,
		"extreme numbers":         testExtremes,
		"times to the last bit":   testTimes,
		"every field comes back":  testFields,
	}
}

// documents returns JSON that a database would change if it parsed it.
func documents() map[string]string {
	return map[string]string{
		"white space":   "{ \"a\" :\t[ 1 ,\n 2 ]\r\n}",
		"numbers":       `{"float":1.0,"exp":1E+2,"big":123456789012345678901234567890,"int64":9223372036854775807,"small":-0.0,"deep":0.1000}`,
		"order of keys": `{"z":1,"a":2,"m":{"y":1,"b":2}}`,
		"repeated keys": `{"a":1,"a":2}`,
		"escapes":       `{"nul":"\u0000","slash":"\/","quote":"\"'","pair":"\ud83d\ude00","lone":"\ud800"}`,
		"unicode":       `{"é":"日本語 😀","sep":"` + "\u2028\u0085" + `"}`,
		"invalid UTF-8": "{\"raw\":\"\xff\xfe\"}",
		"quotes":        `{"sql":"'; DROP TABLE spans; -- \\ %s $1 ?"}`,
		"empty":         `{}`,
		"long":          `{"x":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}`,
	}
}

func testDocuments(d *harness) {
	for name, doc := range documents() {
		raw := jsontext.Value(doc)
		r, a := rollout("r-"+name, agl.RolloutRunning), attempt("r-"+name, 1, agl.AttemptRunning, "")
		r.Input, r.Metadata, a.Metadata = raw, raw, raw
		w := &agl.Worker{WorkerID: "w-" + name, Status: agl.WorkerIdle, HeartbeatStats: raw}
		u := &agl.ResourcesUpdate{ResourcesID: "u-" + name, Version: 1, Resources: agl.Resources{
			{Name: "m", Resource: agl.LLM{Endpoint: "e", Model: "m", SamplingParameters: raw}},
			{Name: "p", Resource: agl.PromptTemplate{Template: "{{ " + name + " }}", Engine: agl.PromptJinja}},
		}}
		span := spanOf(a, "s", 1)
		span.Payload = jsontext.Value(`{"attributes":` + doc + `}`)
		d.apply(driver.Changes{
			Rollouts: created(r), Attempts: begun(a), Workers: []*agl.Worker{w}, Resources: []*agl.ResourcesUpdate{u},
			Spans: []driver.SpanRecord{span},
		})
		same := func(what string, got, want []byte) {
			d.Helper()
			if string(got) != string(want) {
				d.Errorf("%s: %s came back as %.200q, want %.200q", name, what, got, want)
			}
		}
		got := d.load(driver.LoadParams{
			Rollouts: []string{r.RolloutID}, Workers: []string{w.WorkerID}, Resources: []string{u.ResourcesID},
		})
		if len(got.Rollouts) == 0 || len(got.Attempts) == 0 || len(got.Workers) == 0 || len(got.Resources) == 0 {
			d.Fatalf("%s: loaded %+v, want one of each", name, got)
		}
		same("loaded input", got.Rollouts[0].Rollout.Input, raw)
		same("loaded metadata", got.Rollouts[0].Rollout.Metadata, raw)
		same("loaded attempt", got.Attempts[0].Metadata, raw)
		same("loaded worker", got.Workers[0].Worker.HeartbeatStats, raw)
		same("loaded resources", got.Resources[0].AppendJSON(nil), u.AppendJSON(nil))
		found := d.stored(r.RolloutID)
		same("input", found.Input, raw)
		same("metadata", found.Metadata, raw)
		same("attempt", found.Attempt.Metadata, raw)
		worker := must(d.Worker(d.ctx, w.WorkerID))(d)
		same("worker", worker.HeartbeatStats, raw)
		bundle := must(d.Resources(d.ctx, u.ResourcesID))(d)
		same("resources", bundle.AppendJSON(nil), u.AppendJSON(nil))
		same("span", d.allSpans(r.RolloutID, 1)[0].Payload, span.Payload)
	}
}

// texts returns strings that identifiers and names may have.
func texts() []string {
	return []string{
		"plain", "with space", "it's", `"quoted"`, `back\slash`, "semi;colon", "per%cent", "under_score", "a.b/c:d-e", "$1", "?", "@p",
		"tab\tnewline\n", "\x01\x7f", "\u0085\u2028", "é", "e\u0301", "日本語", "😀", "\ufffd", "UPPER", "upper", strings.Repeat("long", 200),
	}
}

func testStrings(d *harness) {
	var c driver.Changes
	for i, s := range texts() {
		r, a := rollout(s, agl.RolloutRunning), attempt(s, 1, agl.AttemptRunning, s)
		r.ResourcesID, a.AttemptID = agl.Some(s), "at "+s
		span := spanOf(a, s, int64(i+1))
		span.Name, span.TraceID, span.ParentID = s, s, s
		c.Rollouts = append(c.Rollouts, created(r)...)
		c.Attempts = append(c.Attempts, begun(a)...)
		c.Spans = append(c.Spans, span)
		c.Sequences = append(c.Sequences, driver.Sequence{RolloutID: s, Last: int64(i + 1)})
		c.Workers = append(c.Workers, &agl.Worker{WorkerID: s, Status: agl.WorkerBusy, CurrentRolloutID: agl.Some(s), CurrentAttemptID: agl.Some("at " + s)})
		c.Resources = append(c.Resources, &agl.ResourcesUpdate{ResourcesID: s, Version: 1})
		c.Keys = append(c.Keys, driver.IdempotencyRecord{
			Scope: "op  " + s, Fingerprint: s, CreateTime: d.now, Made: []driver.AttemptKey{{RolloutID: s, AttemptID: "at " + s}}, ResourcesID: s,
		})
		c.Events = append(c.Events, agl.Event{Kind: agl.EventWorker, WorkerID: s, Status: "busy"})
	}
	begin := d.events("", 0).Last
	d.apply(c)
	for i, s := range texts() {
		span := driver.SpanKey{RolloutID: s, AttemptID: "at " + s, SpanID: s}
		got := d.load(driver.LoadParams{
			Rollouts: []string{s}, Workers: []string{s}, Resources: []string{s}, Sequences: []string{s},
			Spans: []driver.SpanKey{span}, Keys: []string{"op  " + s},
		})
		if len(got.Rollouts) == 0 || len(got.Workers) == 0 || len(got.Resources) != 1 || len(got.Sequences) != 1 || len(got.Spans) != 1 || len(got.Keys) != 1 {
			d.Errorf("%q: loaded %+v, want one of each", s, got)
			continue
		}
		equal(d, "rollout", got.Rollouts[0].Rollout.RolloutID, s)
		equal(d, "resources of the rollout", got.Rollouts[0].Rollout.ResourcesID, agl.Some(s))
		equal(d, "latest", got.Rollouts[0].Latest, "at "+s)
		equal(d, "worker", got.Workers[0].WorkerID, s)
		equal(d, "live attempts", got.Workers[0].LiveAttempts, 1)
		equal(d, "resources", got.Resources[0].ResourcesID, s)
		equal(d, "sequence", got.Sequences[0], driver.Sequence{RolloutID: s, Last: int64(i + 1)})
		equal(d, "span", got.Spans[0], span)
		equal(d, "key", got.Keys[0].Scope+got.Keys[0].Fingerprint+got.Keys[0].ResourcesID+got.Keys[0].Made[0].AttemptID, "op  "+s+s+s+"at "+s)
		page, err := d.QuerySpans(d.ctx, agl.QuerySpansParams{
			RolloutID: s, AttemptID: "at " + s, SpanID: s, Name: s, TraceID: s, ParentID: s, Paging: agl.Paging{Limit: -1},
		})
		if err != nil || page.Total != 1 {
			d.Errorf("%q: %d spans, error %v, want one", s, page.Total, err)
		}
	}
	for i, e := range d.events(begin, len(texts())).Events {
		equal(d, "event", e.WorkerID, texts()[i])
	}
}

func testExtremes(d *harness) {
	a := attempt("r", 1, agl.AttemptRunning, "")
	ids := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}
	c := driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(a)}
	for i, id := range ids {
		c.Spans = append(c.Spans, spanOf(a, fmt.Sprint(len(ids)-i), id))
		c.Sequences = append(c.Sequences, driver.Sequence{RolloutID: fmt.Sprint(id), Last: id})
	}
	far := attempt("r", 2, agl.AttemptFailed, "")
	far.SequenceID = math.MaxInt32
	r := rollout("many", agl.RolloutRunning)
	r.Config.MaxAttempts = math.MaxInt32
	r.Config.TimeoutSeconds, r.Config.UnresponsiveSeconds = agl.Some(-1.5), agl.Some(1e300)
	c.Rollouts = append(c.Rollouts, created(r)...)
	c.Attempts = append(c.Attempts, begun(far)...)
	c.Resources = []*agl.ResourcesUpdate{{ResourcesID: "u", Version: math.MaxInt32}}
	d.apply(c)
	for i, s := range d.allSpans("r", len(ids)) {
		equal(d, "span", string(s.Payload), string(c.Spans[i].Payload))
		got := d.load(driver.LoadParams{Sequences: []string{fmt.Sprint(ids[i])}}).Sequences
		if len(got) != 1 || got[0].Last != ids[i] {
			d.Errorf("sequences %v, want %d", got, ids[i])
		}
	}
	got := d.load(driver.LoadParams{Rollouts: []string{"many", "r"}, Resources: []string{"u"}})
	equal(d, "config", string(got.Rollouts[0].Rollout.Config.AppendJSON(nil)), string(r.Config.AppendJSON(nil)))
	equal(d, "latest", got.Rollouts[1].Latest, "at-2")
	equal(d, "version", got.Resources[0].Version, math.MaxInt32)
}

// moments returns times that a database would round if it stored microseconds or text.
func moments() []agl.Timestamp {
	return []agl.Timestamp{
		1760000000.1234567, agl.Timestamp(math.Nextafter(1760000000, 0)), agl.Timestamp(math.Nextafter(1760000000, 2e9)),
		0, 1e-9, -1.5, 253402300800, math.MaxFloat64, math.SmallestNonzeroFloat64, 1.0 / 3,
	}
}

func testTimes(d *harness) {
	for i, at := range moments() {
		id := fmt.Sprintf("r%d", i)
		r, a := rollout(id, agl.RolloutFailed), attempt(id, 1, agl.AttemptFailed, "")
		r.StartTime, r.EndTime = at, agl.Some(at)
		a.StartTime, a.EndTime, a.LastHeartbeatTime = at, agl.Some(at), agl.Some(at)
		w := &agl.Worker{
			WorkerID: id, Status: agl.WorkerIdle, LastHeartbeatTime: agl.Some(at), LastDequeueTime: agl.Some(at),
			LastBusyTime: agl.Some(at), LastIdleTime: agl.Some(at),
		}
		u := &agl.ResourcesUpdate{ResourcesID: id, Version: 1, CreateTime: at, UpdateTime: at}
		d.apply(driver.Changes{Rollouts: created(r), Attempts: begun(a), Workers: []*agl.Worker{w}, Resources: []*agl.ResourcesUpdate{u}})
		got := d.load(driver.LoadParams{Rollouts: []string{id}, Workers: []string{id}, Resources: []string{id}})
		equal(d, "rollout", string(got.Rollouts[0].Rollout.AppendJSON(nil)), string(r.AppendJSON(nil)))
		equal(d, "attempt", string(got.Attempts[0].AppendJSON(nil)), string(a.AppendJSON(nil)))
		equal(d, "worker", string(got.Workers[0].Worker.AppendJSON(nil)), string(w.AppendJSON(nil)))
		equal(d, "resources", string(got.Resources[0].AppendJSON(nil)), string(u.AppendJSON(nil)))
	}
}

func testFields(d *harness) {
	r := &agl.Rollout{
		RolloutID: "r", Input: jsontext.Value(`[1]`), StartTime: 5, EndTime: agl.Some(agl.Timestamp(6)), Mode: agl.ModeVal,
		ResourcesID: agl.Some("u"), Status: agl.RolloutFailed, Metadata: jsontext.Value(`{"k":1.0}`),
		Config: agl.RolloutConfig{
			TimeoutSeconds: agl.Some(1.5), UnresponsiveSeconds: agl.Some(0.0), MaxAttempts: 3,
			RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout, agl.AttemptFailed},
		},
	}
	a := &agl.Attempt{
		RolloutID: "r", AttemptID: "a", SequenceID: 1, StartTime: 5, EndTime: agl.Some(agl.Timestamp(6)), Status: agl.AttemptFailed,
		WorkerID: agl.Some("w"), LastHeartbeatTime: agl.Some(agl.Timestamp(5.5)), Metadata: jsontext.Value(`{"m":[]}`),
	}
	changedRollout, changedAttempt := *r, *a
	changedRollout.EndTime, changedRollout.Mode, changedRollout.ResourcesID = agl.Null[agl.Timestamp]{}, agl.ModeNone, agl.Null[string]{}
	changedRollout.Status, changedRollout.Metadata, changedRollout.Config = agl.RolloutRunning, nil, agl.RolloutConfig{MaxAttempts: 1}
	changedRollout.Input = jsontext.Value(`null`)
	changedAttempt.EndTime, changedAttempt.WorkerID, changedAttempt.LastHeartbeatTime = agl.Null[agl.Timestamp]{}, agl.Null[string]{}, agl.Null[agl.Timestamp]{}
	changedAttempt.Status, changedAttempt.Metadata = agl.AttemptRunning, nil
	emptyRollout, emptyAttempt := changedRollout, changedAttempt // empty is not null
	emptyRollout.ResourcesID, emptyAttempt.WorkerID = agl.Some(""), agl.Some("")
	emptyRollout.Metadata, emptyAttempt.Metadata = jsontext.Value(`{}`), jsontext.Value(`{}`)
	d.apply(driver.Changes{Rollouts: created(r), Attempts: begun(a)})
	for _, want := range []struct {
		r *agl.Rollout
		a *agl.Attempt
	}{{r, a}, {&changedRollout, &changedAttempt}, {r, a}, {&emptyRollout, &emptyAttempt}} {
		d.apply(driver.Changes{Rollouts: changed(want.r), Attempts: []driver.AttemptChange{{Attempt: want.a}}})
		got, attempted := d.stored("r"), agl.AttemptedRollout{Rollout: *want.r, Attempt: want.a}
		equal(d, "rollout", string(got.AppendJSON(nil)), string(attempted.AppendJSON(nil)))
		equal(d, "null metadata", got.Metadata == nil && got.Attempt.Metadata == nil, want.r.Metadata == nil)
		page := must(d.QueryAttempts(d.ctx, agl.QueryAttemptsParams{RolloutID: "r", Paging: agl.Paging{Limit: -1}}))(d)
		equal(d, "attempts", page.Total, 1)
		equal(d, "attempt", string(page.Items[0].AppendJSON(nil)), string(want.a.AppendJSON(nil)))
	}
}
