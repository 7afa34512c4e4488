package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/store/driver"
)

// Clock tells the time, which must not run backwards, and makes timers.
type Clock interface {
	Now() time.Time
	// NewTimer returns a channel that receives once, when d has passed; stop
	// releases the timer and may be called at any time.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}

// steadyClock is the Clock of Config's zero value: the system's time when the store was
// opened, plus the time that has passed since. Setting the system's clock therefore
// neither ends attempts nor keeps them alive. While no attempt has a deadline, the clock
// follows a system's clock that is ahead; see [committer.followSystem].
type steadyClock struct {
	start    time.Time        // with a monotonic reading
	offset   time.Duration    // ahead of the system's time at the start
	followed atomic.Int64     // what followSystem has added, in nanoseconds
	system   func() time.Time // the system's time
	uptime   func() (boot string, up time.Duration)
}

func newSteadyClock() *steadyClock {
	return &steadyClock{start: time.Now(), system: time.Now, uptime: uptime}
}

func (c *steadyClock) Now() time.Time {
	return c.start.Add(c.offset + time.Duration(c.followed.Load()) + time.Since(c.start))
}

// behind returns how far the clock is behind the system's. It compares what both show: their monotonic readings agree.
func (c *steadyClock) behind() time.Duration { return c.system().Round(0).Sub(c.Now().Round(0)) }

// notBefore advances the clock to t if t is ahead. It is called before the clock is shared.
func (c *steadyClock) notBefore(t time.Time) { c.offset += max(0, t.Sub(c.Now())) }

func (*steadyClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// clockTolerance is how far the system's clock may be off before a store concludes that it was set.
const clockTolerance = time.Second

// clockNote is a note about a store's clock for the next process: the time that it showed when the machine booted.
// Setting the system's clock changes neither that time nor the machine's uptime.
type clockNote struct {
	Boot  string `json:"boot"`  // the id of the machine's boot
	Start int64  `json:"start"` // in nanoseconds of Unix time
}

// resumeClock sets the store's own clock to the one that the times in the database come from, if attempts are live,
// so that setting the system's clock between two processes neither ends them nor keeps them alive. If there is a note
// from the same boot of the machine, the time that has passed is known. Otherwise it is only known that the clock is
// not behind the latest time of a live attempt.
func (s *Store) resumeClock(ctx context.Context, live []agl.AttemptedRollout) error {
	clock, own := s.clock.(*steadyClock)
	if !own {
		return nil
	}
	var noted clockNote
	boot, up := "", time.Duration(0)
	if s.notesClock {
		boot, up = clock.uptime()
		var err error
		if noted, err = s.clockNote(ctx); err != nil {
			return err
		}
	}
	var latest agl.Timestamp
	for i := range live {
		a := live[i].Attempt
		latest = max(latest, a.StartTime, a.LastHeartbeatTime.V)
	}
	if len(live) > 0 {
		system := clock.Now()
		if off := time.Unix(0, noted.Start).Add(up).Sub(system); boot != "" && noted.Boot == boot && off.Abs() > clockTolerance {
			clock.offset += off
		}
		clock.notBefore(latest.Time().Add(deadlineSlack)) // later, so that the last heartbeats get the grace period
		if by := clock.Now().Sub(system); by.Abs() > clockTolerance {
			s.log.WarnContext(ctx, "the system's clock was set while the store was closed; the store goes on from its own as long as attempts run", "ahead", by)
		}
	}
	return s.note(ctx, clock, noted, boot, up)
}

// note notes the clock for the next process, unless that is what is noted or boot is not known.
func (s *Store) note(ctx context.Context, clock *steadyClock, noted clockNote, boot string, up time.Duration) error {
	now := clockNote{boot, clock.Now().Add(-up).UnixNano()}
	if boot == "" || noted.Boot == boot && time.Duration(noted.Start-now.Start).Abs() <= clockTolerance {
		return nil
	}
	if err := s.noteClock(ctx, now); err != nil { // a full disk must not keep the store from serving reads
		s.log.WarnContext(ctx, "the store's clock is not noted: deadlines would follow the system's clock if that were set before the next start", "error", err)
	}
	return nil
}

// followSystem advances the store's clock to the system's: the machine was suspended, which its monotonic clock does not
// count, or its clock was wrong when the store was opened. The store's times would otherwise stay wrong until it is opened
// again. It waits until no attempt has a deadline that this would reach. Only the goroutine that runs a batch calls it.
func (c *committer) followSystem(ctx context.Context) {
	clock, own := c.clock.(*steadyClock)
	if _, live := c.deadlines.next(); !own || live || c.outage { // after an outage the deadlines may be incomplete
		return
	}
	by := clock.behind()
	if by <= clockTolerance {
		return
	}
	clock.followed.Add(int64(by))
	c.log.InfoContext(ctx, "the store's clock follows the system's, which was set or whose machine was suspended", "ahead", by)
	background.Wake(c.clockMoved)
}

// noteMovedClock notes a clock that followSystem has moved.
func (s *Store) noteMovedClock(ctx context.Context) error {
	clock, own := s.clock.(*steadyClock)
	if !own || !s.notesClock {
		return nil
	}
	noted, err := s.clockNote(ctx)
	if err != nil {
		return err
	}
	boot, up := clock.uptime()
	return s.note(ctx, clock, noted, boot, up)
}

func (s *Store) clockNote(ctx context.Context) (noted clockNote, err error) {
	document, err := s.driver.Document(ctx, driver.ClockNote())
	if err == nil {
		err = json.Unmarshal(document.Body, &noted)
	}
	if errors.Is(err, agl.ErrNotFound) {
		return clockNote{}, nil
	}
	return noted, err
}

func (s *Store) noteClock(ctx context.Context, now clockNote) error {
	body, err := json.Marshal(now)
	if err != nil {
		return err
	}
	key := driver.ClockNote()
	_, err = s.writeDocuments(ctx, []agl.DocumentWrite{{Kind: key.Kind, ID: key.ID, Body: body, Quiet: true}})
	return err
}
