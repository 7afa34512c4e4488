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

// Throttle limits how often an address may fail to say who it is. The zero value limits
// nothing. It is safe for concurrent use.
type Throttle struct {
	perMinute int

	mu       sync.Mutex
	failures map[string]*failures // by address, of the present minute
}

type failures struct {
	count int
	since time.Time
}

// NewThrottle returns a throttle that lets an address fail so often in a minute; 0 is
// without limit.
func NewThrottle(perMinute int) *Throttle {
	return &Throttle{perMinute: perMinute, failures: map[string]*failures{}}
}

// Blocked returns for how long an address may not try again; 0 is not at all.
func (t *Throttle) Blocked(address string, now time.Time) time.Duration {
	if t.perMinute == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failures[host(address)]
	if f == nil || f.count < t.perMinute {
		return 0
	}
	return max(f.since.Add(throttleWindow).Sub(now), 0)
}

// Fail counts a failure of an address.
func (t *Throttle) Fail(address string, now time.Time) {
	if t.perMinute == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	address = host(address)
	f := t.failures[address]
	if f == nil || now.Sub(f.since) >= throttleWindow {
		t.makeRoom(now)
		f = &failures{since: now}
		t.failures[address] = f
	}
	f.count++
}

// makeRoom drops what is over once there are too many addresses, and everything if that is
// not enough.
func (t *Throttle) makeRoom(now time.Time) {
	if len(t.failures) < maxThrottled {
		return
	}
	for address, f := range t.failures {
		if now.Sub(f.since) >= throttleWindow {
			delete(t.failures, address)
		}
	}
	if len(t.failures) >= maxThrottled {
		clear(t.failures)
	}
}

// host returns an address without its port. Of IPv6 it is the network of 64 bits, which one
// client usually has to itself.
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
