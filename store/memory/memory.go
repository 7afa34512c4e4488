// Package memory is the [driver.Driver] that keeps everything in this process: for tests, for debugging, and for runs
// whose results need not outlive it.
//
//	d, err := memory.New(memory.Config{})
//	s, err := store.New(ctx, store.Config{Driver: d})
//
// The package must not know any rule of a rollout's lifecycle: the engine in package store decides.
package memory

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/mem"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Limit is an amount of memory: a number of bytes or, if Bytes is 0, a share of something larger. The zero value
// means the default.
type Limit struct {
	Bytes int64
	Ratio float64
}

func (l Limit) of(whole int64) int64 {
	if l.Bytes > 0 {
		return l.Bytes
	}
	return int64(l.Ratio * float64(whole))
}

// Config says how much memory a driver uses. Its zero value is usable.
type Config struct {
	// CapacityBytes is the memory that shares refer to; 0 is the machine's.
	CapacityBytes int64
	// EvictionThreshold is the size of all spans above which those of finished
	// rollouts are evicted, oldest rollouts first: bytes, or a share of the
	// capacity in (0, 1]. The zero value is 70 % of it.
	EvictionThreshold Limit
	// SafeThreshold is the size down to which eviction goes: bytes below the
	// eviction threshold, or a share of it in [0, 1). The zero value is 80 %.
	SafeThreshold Limit
	driver.Lifetimes
}

const (
	defaultEvictionRatio  = 0.7
	defaultSafeRatio      = 0.8
	defaultIdempotencyTTL = 10 * time.Minute
)

func (c Config) withDefaults() (Config, error) {
	if c.CapacityBytes == 0 && c.EvictionThreshold.Bytes == 0 {
		machine, err := mem.VirtualMemory()
		if err != nil {
			return c, agl.Errorf(agl.CodeInternal, "memory.Config.CapacityBytes is 0 and the machine's memory is unknown: %w", err)
		}
		c.CapacityBytes = int64(min(machine.Total, 1<<62))
	}
	if c.EvictionThreshold == (Limit{}) {
		c.EvictionThreshold.Ratio = defaultEvictionRatio
	}
	if c.SafeThreshold == (Limit{}) {
		c.SafeThreshold.Ratio = defaultSafeRatio
	}
	c.Lifetimes = c.WithDefaults(defaultIdempotencyTTL)
	return c, nil
}

func (c Config) validate() error {
	eviction, safe := c.EvictionThreshold, c.SafeThreshold
	switch {
	case c.CapacityBytes < 0:
		return agl.Errorf(agl.CodeInvalid, "memory.Config.CapacityBytes: got %d, must not be negative", c.CapacityBytes)
	case eviction.Bytes < 0 || eviction.Bytes == 0 && (eviction.Ratio <= 0 || eviction.Ratio > 1):
		return agl.Errorf(agl.CodeInvalid, "memory.Config.EvictionThreshold: got %+v, must be bytes or a ratio in (0, 1]", eviction)
	case safe.Bytes < 0 || safe.Bytes == 0 && (safe.Ratio < 0 || safe.Ratio >= 1):
		return agl.Errorf(agl.CodeInvalid, "memory.Config.SafeThreshold: got %+v, must be bytes or a ratio in [0, 1)", safe)
	case safe.Bytes >= eviction.of(c.CapacityBytes) && safe.Bytes > 0:
		return agl.Errorf(agl.CodeInvalid, "memory.Config.SafeThreshold: got %d bytes, must be below the eviction threshold of %d",
			safe.Bytes, eviction.of(c.CapacityBytes))
	}
	return c.Validate("memory.Config")
}

// Driver is a driver.Driver in memory. Create one with [New].
type Driver struct {
	config    Config
	evictAt   int64 // bytes of spans above which to evict
	evictDown int64 // bytes of spans down to which to evict

	mu         sync.RWMutex
	ordinal    int64 // the last number in the order of creation
	rollouts   map[string]*rollout
	ordered    []*rollout // by creation
	unsorted   bool       // whether one of ordered has an earlier start than the one before it
	statuses   map[agl.RolloutStatus]int
	attempts   int
	queue      queue
	closed     bool // the queue
	workers    map[string]*worker
	workerList []*worker // those that exist, by creation
	resources  map[string]*bundle
	bundleList []*bundle // by creation
	latest     *bundle
	sequences  map[string]int64
	// unknownSequences has the last use of the sequences of rollouts that do not exist.
	unknownSequences map[string]agl.Timestamp
	spans            int
	evictable        evictable
	keys             keys
	documents        documents
	events           events

	tx tx
}

type rollout struct {
	cur      *agl.Rollout
	labels   driver.Labels
	ordinal  int64
	ticket   int64 // its place in the queue; 0 when it is not in it
	attempts []*attempt
	spans    spanList
	bytes    int64 // of spans
	evicted  bool
	heapAt   int // its index in the heap of evictable rollouts plus 1; 0 if it is not there
}

type attempt struct {
	cur   *agl.Attempt
	spans spanList
	ids   map[string]*span // by span id
}

type worker struct {
	cur  *agl.Worker // nil when it was only named by attempts
	live int         // live attempts, each the latest of its rollout, that carry its id
}

type bundle struct {
	cur *agl.ResourcesUpdate
}

var _ driver.Driver = (*Driver)(nil)

// New returns an empty driver.
func New(config Config) (*Driver, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	d := &Driver{
		config:   config,
		statuses: map[agl.RolloutStatus]int{}, rollouts: map[string]*rollout{},
		workers:   map[string]*worker{},
		resources: map[string]*bundle{},
		sequences: map[string]int64{},

		unknownSequences: map[string]agl.Timestamp{},
	}
	d.evictAt = config.EvictionThreshold.of(config.CapacityBytes)
	d.evictDown = config.SafeThreshold.of(d.evictAt)
	d.documents.init()
	d.keys.init(config.IdempotencyTTL)
	// The epoch distinguishes event ids from those of other processes.
	d.events.init(strconv.FormatInt(time.Now().UnixNano(), 36), config.EventTTL, config.MaxEvents)
	d.tx.driver = d
	return d, nil
}

// Capabilities implements driver.Driver.
func (*Driver) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// Close implements driver.Driver. The data stays readable by another engine.
func (*Driver) Close(context.Context) error { return nil }

// Statistics implements driver.Driver.
func (d *Driver) Statistics(context.Context) (agl.Statistics, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return agl.Statistics{
		Name:           "memory",
		TotalRollouts:  len(d.ordered),
		TotalAttempts:  d.attempts,
		TotalSpans:     d.spans,
		TotalResources: len(d.bundleList),
		TotalWorkers:   len(d.workerList),
		QueueClosed:    d.closed,
		Memory: &agl.MemoryStatistics{
			TotalSpanBytes:         d.evictable.total,
			EvictionThresholdBytes: d.evictAt,
			SafeThresholdBytes:     d.evictDown,
			MemoryCapacityBytes:    d.config.CapacityBytes,
		},
	}, nil
}

func (r *rollout) latest() *attempt {
	if len(r.attempts) == 0 {
		return nil
	}
	return r.attempts[len(r.attempts)-1]
}

func (r *rollout) attempt(id string) *attempt {
	for _, a := range slices.Backward(r.attempts) {
		if a.cur.AttemptID == id {
			return a
		}
	}
	return nil
}

func (r *rollout) attempted() agl.AttemptedRollout {
	out := agl.AttemptedRollout{Rollout: *r.cur}
	if a := r.latest(); a != nil {
		out.Attempt = a.cur
	}
	return out
}
