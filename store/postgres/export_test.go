package postgres

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// ForgetOld is what the driver does every now and then.
func (d *Driver) ForgetOld(ctx context.Context, now agl.Timestamp) error {
	return d.forgetOld(ctx, now)
}

// Heard makes the driver hear of a batch on another server.
func (d *Driver) Heard(n store.Notice) {
	t := told{Server: "another", Resync: n.Resync, Queue: n.Queue, Rollouts: n.Rollouts}
	d.listener.heard(string(t.payload()))
}

// Statements are the names and texts of what batches send.
func Statements() map[string]string {
	out := map[string]string{}
	for _, s := range []*statement{
		lockRollouts, tryRollouts, readAttempts, lockWorkers, tryWorkers, lockSequences, trySequences, lockResources, tryResources,
		countLive, existingRollouts, readSpans, readKeys, claimRollouts, countQueued,
		insertRollouts, moveRollouts, replaceRollouts, countAttempts, insertAttempts, updateAttempts, countSpans, removeAttempts,
		insertWorkers, putWorkers, insertSequences, putSequences, insertResources, putResources, insertSpans, insertKeys, putKeys, forgetKeys,
		deleteSpans, deleteAttempts, deleteSequences, deleteRollouts, markEvicted, clearCounts, insertEvents,
	} {
		out[s.name] = s.sql
	}
	return out
}

// WriterParams are the settings of the connection that batches use.
func WriterParams(url string) (map[string]string, error) {
	parsed, err := parse(Config{URL: url}.withDefaults())
	if err != nil {
		return nil, err
	}
	return writerConfig(parsed).RuntimeParams, nil
}

// Text and Untext are how columns keep texts.
func Text(s string) string   { return text(s) }
func Untext(s string) string { return untext(s) }
