package access

import (
	"net"
	"sync"
	"time"
)

const (
	throttleWindow = time.Minute
	maxThrottled   = 1 << 14 // addresses
)

// Throttle limits how often an address may fail to authenticate. A nil Throttle and the zero value limit nothing. It
// is safe for concurrent use.
type Throttle struct {
	// OnBlock, if not nil, is called when an address, or its network, is refused from now on until the minute is over.
	OnBlock func(address string)

	perMinute int

	mu       sync.Mutex
	failures map[string]*failures // of the current minute, by address
}

type failures struct {
	count int
	since time.Time
}

// NewThrottle returns a throttle that allows each address perMinute failures a minute; 0 means no limit.
func NewThrottle(perMinute int) *Throttle {
	return &Throttle{perMinute: perMinute, failures: map[string]*failures{}}
}

// Admit calls find, which reports whether it has identified the caller. If the address must wait, Admit does not call
// find and returns how long; but a credential that cannot be guessed, such as a key, is checked even then: its owner
// must not suffer from others behind the same address. given says that the caller sent a credential, so a failure
// counts.
func (t *Throttle) Admit(address string, given, guessable bool, find func() (found bool)) (wait time.Duration) {
	now := time.Now()
	wait = t.Blocked(address, now)
	switch {
	case wait > 0 && guessable:
		return wait
	case find():
		return 0
	case wait == 0 && given:
		t.Fail(address, now)
	}
	return wait
}

// ThrottledError says that an address must wait. Its HTTP status is 429.
type ThrottledError struct{ Wait time.Duration }

func (e *ThrottledError) Error() string {
	return "too many wrong tokens and keys have come from this address; try again in " + e.Wait.Round(time.Second).String()
}

// Blocked returns how long an address must wait before its next attempt; 0 if it need not wait.
func (t *Throttle) Blocked(address string, now time.Time) time.Duration {
	if t == nil || t.perMinute == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) == 0 {
		return 0
	}
	f := t.failures[host(address)]
	if f == nil || f.count < t.perMinute {
		return 0
	}
	return max(f.since.Add(throttleWindow).Sub(now), 0)
}

// Fail counts a failure of an address.
func (t *Throttle) Fail(address string, now time.Time) {
	if t == nil || t.perMinute == 0 {
		return
	}
	address = host(address)
	if t.count(address, now) == t.perMinute && t.OnBlock != nil {
		t.OnBlock(address)
	}
}

// count counts a failure, and returns how many there are in this minute.
func (t *Throttle) count(address string, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failures[address]
	over := func(f *failures) bool { return now.Sub(f.since) >= throttleWindow }
	if f == nil || over(f) {
		makeRoom(t.failures, maxThrottled, over)
		f = &failures{since: now}
		t.failures[address] = f
	}
	f.count++
	return f.count
}

// host returns an address without its port. For IPv6 it is the /64 network, which usually belongs to one client.
func host(address string) string {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		name = address
	}
	if ip := net.ParseIP(name); ip != nil && ip.To4() == nil {
		const bits = 64
		return ip.Mask(net.CIDRMask(bits, 8*net.IPv6len)).String() //nolint:mnd // bits of a byte
	}
	return name
}
