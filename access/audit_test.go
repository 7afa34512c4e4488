package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Acts come back newest first, and the oldest are deleted beyond a number.
func TestAudit(t *testing.T) {
	t.Parallel()
	a := NewAudit(memorytest.Open(t))
	const n = 40
	for i := range n {
		if err := a.Record(t.Context(), &Act{By: "root", From: "127.0.0.1:1", Method: "POST", Path: fmt.Sprint("/", i), Status: 200}); err != nil {
			t.Fatal(err)
		}
	}
	acts, total, err := a.List(t.Context(), n, 0)
	if err != nil || total != n || len(acts) != n {
		t.Fatalf("%d of %d, %v", len(acts), total, err)
	}
	seen := map[string]bool{}
	for _, act := range acts {
		seen[act.Path] = true
	}
	if len(seen) != n || acts[0].By != "root" || acts[0].From != "127.0.0.1:1" {
		t.Errorf("got %+v", acts)
	}
	if err := a.prune(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	left, total, err := a.List(t.Context(), 0, 0)
	if err != nil || total != 10 || len(left) != 10 {
		t.Fatalf("%d of %d are left, %v", len(left), total, err)
	}
	for i := range left {
		if left[i] != acts[i] {
			t.Errorf("act %d is %+v, was %+v", i, left[i], acts[i])
		}
	}
}

// When the clock was set back, the acts that were recorded first are still deleted first.
func TestAuditAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	documents := memorytest.Open(t)
	early := agl.DocumentWrite{Kind: auditKind, ID: "early", Sequence: time.Now().Add(24 * time.Hour).UnixMicro()}
	if err := agl.WriteDocument(t.Context(), documents, early, &Act{Path: "/early"}); err != nil {
		t.Fatal(err)
	}
	a := NewAudit(documents)
	for _, path := range []string{"/1", "/2"} {
		if err := a.Record(t.Context(), &Act{Path: path}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.prune(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if left, _, err := a.List(t.Context(), 0, 0); err != nil || len(left) != 2 || left[0].Path != "/2" || left[1].Path != "/1" {
		t.Errorf("%+v are left, %v", left, err)
	}
}

// What a caller has sent is kept as text, and not at any length.
func TestAuditOfOddTexts(t *testing.T) {
	t.Parallel()
	a := NewAudit(memorytest.Open(t))
	for _, path := range []string{"/v1/\xff\xfe", "/" + strings.Repeat("é", 1<<20), "/\x00\x1b[31m"} {
		if err := a.Record(t.Context(), &Act{By: "root", Method: "POST", Path: path, Status: 200}); err != nil {
			t.Errorf("%.20q is not kept: %v", path, err)
		}
	}
	acts, total, err := a.List(t.Context(), 10, 0)
	if err != nil || total != 3 {
		t.Fatalf("%d, %v", total, err)
	}
	for _, act := range acts {
		if !utf8.ValidString(act.Path) || len(act.Path) > 2*maxActText {
			t.Errorf("got %d bytes of %.20q", len(act.Path), act.Path)
		}
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	throttle := NewThrottle(3)
	var told []string
	throttle.OnBlock = func(address string) { told = append(told, address) }
	for i := range 3 {
		if wait := throttle.Blocked("10.0.0.1:1", now); wait != 0 {
			t.Errorf("after %d failures: %s", i, wait)
		}
		throttle.Fail(fmt.Sprint("10.0.0.1:", i), now) // whatever the port
	}
	for address, want := range map[string]time.Duration{"10.0.0.1:9": time.Minute, "10.0.0.1": time.Minute, "10.0.0.2:1": 0, "[2001:db8::1]:1": 0} {
		if wait := throttle.Blocked(address, now); wait != want {
			t.Errorf("%s: %s, want %s", address, wait, want)
		}
	}
	if wait := throttle.Blocked("10.0.0.1:1", now.Add(time.Minute)); wait != 0 {
		t.Errorf("a minute later: %s", wait)
	}
	for i := range 3 {
		throttle.Fail(fmt.Sprintf("[2001:db8::%d]:1", i), now)
	}
	if throttle.Blocked("[2001:db8::ffff]:1", now) == 0 {
		t.Error("another address of the same network may go on")
	}
	if want := []string{"10.0.0.1", "2001:db8::"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	for i := range 2 * maxThrottled {
		throttle.Fail(fmt.Sprintf("10.%d.%d.%d:1", 1+i>>16, i>>8&255, i&255), now)
	}
	if n := len(throttle.failures); n > maxThrottled {
		t.Errorf("%d addresses are kept", n)
	}
	unlimited := NewThrottle(0)
	for range 100 {
		unlimited.Fail("10.0.0.1:1", now)
	}
	if wait := unlimited.Blocked("10.0.0.1:1", now); wait != 0 {
		t.Errorf("without limit: %s", wait)
	}
}
