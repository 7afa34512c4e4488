package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var cancelled time.Duration
		s := newIdleTimeout(10*time.Second, func() { cancelled = time.Since(began) })
		for range 5 {
			time.Sleep(9 * time.Second)
			s.alive()
		}
		s.suspend()
		time.Sleep(time.Hour)
		synctest.Wait()
		if cancelled != 0 {
			t.Fatalf("cancelled after %v", cancelled)
		}
		s.alive()
		heard := time.Since(began)
		time.Sleep(time.Minute)
		synctest.Wait()
		if cancelled != heard+10*time.Second {
			t.Errorf("cancelled after %v, want %v", cancelled, heard+10*time.Second)
		}
		cancelled = 0
		s = newIdleTimeout(10*time.Second, func() { cancelled = 1 })
		s.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if cancelled != 0 {
			t.Error("cancelled after its end")
		}
	})
}
