package postgres

import (
	"context"
	"log/slog"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// ForgetOld deletes expired records.
func (d *Driver) ForgetOld(ctx context.Context, now agl.Timestamp) error {
	return d.forgetOld(ctx, now)
}

// Heard simulates a notification of another server.
func (d *Driver) Heard(n driver.Notice) {
	t := notification{Server: "another", Resync: n.Resync, Queue: n.Queue, Rollouts: n.Rollouts}
	d.listener.heard(string(t.payload()))
}

// Statements are those that batches send, by names.
func Statements() map[string]string {
	return map[string]string{
		"lock_rollouts": lockRollouts, "try_rollouts": lockRollouts + noWait, "read_attempts": readAttempts, "lock_workers": lockWorkers,
		"try_workers": lockWorkers + noWait, "lock_sequences": lockSequences, "try_sequences": lockSequences + noWait, "lock_resources": lockResources,
		"try_resources": lockResources + noWait, "count_live": countLive, "existing_rollouts": existingRollouts, "read_spans": readSpans,
		"read_keys": readKeys, "claim": claimRollouts, "count_queued": countQueued, "insert_rollouts": insertRollouts,
		"move_rollouts": moveRollouts, "replace_rollouts": replaceRollouts, "count_attempts": countAttempts,
		"insert_attempts": insertAttempts, "update_attempts": updateAttempts, "count_spans": countSpans,
		"remove_attempts": removeAttempts, "remove_spans": removeSpans, "remove_keys": removeKeys, "read_used": readUsed, "insert_workers": insertWorkers, "put_workers": putWorkers,
		"insert_sequences": insertSequences, "put_sequences": putSequences, "insert_resources": insertResources,
		"put_resources": putResources, "insert_spans": insertSpans, "insert_keys": insertKeys, "put_keys": putKeys,
		"forget_keys": forgetKeys, "delete_spans": deleteSpans, "delete_attempts": deleteAttempts,
		"delete_sequences": deleteSequences, "delete_rollouts": deleteRollouts, "mark_evicted": markEvicted,
		"clear_counts": clearCounts, "follow_rewards": followRewards, "insert_events": insertEvents,
	}
}

// LaterPage returns the statement for the page of 50 spans at an offset, after a reader has read the page before it.
func LaterPage(p agl.QuerySpansParams, sequence int64) (sql string, args []any) {
	p.Limit = 50
	s := spanSearch(p, pageEnd{sequence: sequence, passed: p.Offset - 1}, new(int64))
	return s.page.sql, stored(s.page.args)
}

// WriterParams are the settings of the connection of the batches.
func WriterParams(url string) (map[string]string, error) {
	parsed, err := parse(Config{URL: url}.withDefaults())
	if err != nil {
		return nil, err
	}
	return writerConfig(parsed).RuntimeParams, nil
}

// Text and Untext convert to and from the stored form of a text.
func Text(s string) string   { return text(s) }
func Untext(s string) string { return untext(s) }

// MigrateFurther migrates a database to the schema of a program with one migration more.
func MigrateFurther(ctx context.Context, url string, log *slog.Logger) error {
	parsed, err := parse(Config{URL: url}.withDefaults())
	if err != nil {
		return err
	}
	conn, err := connect(ctx, parsed.ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	steps, err := known()
	if err != nil {
		return err
	}
	_, err = migrateWith(ctx, conn, parsed.ConnConfig, append(steps, "ALTER TABLE store ADD COLUMN further integer"), log)
	return err
}

// ServingLock is a statement that holds the schema as a server does.
const ServingLock = `SELECT pg_advisory_lock_shared(` + servingLock + `)`
