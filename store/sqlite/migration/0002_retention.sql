-- Retention removes finished rollouts, spans or not, and sequences of unknown
-- rollouts, the oldest first.
DROP INDEX rollouts_evictable;
CREATE INDEX rollouts_finished ON rollouts (holds, end_time) WHERE status IN ('failed', 'succeeded', 'cancelled');
ALTER TABLE ghosts ADD COLUMN used REAL NOT NULL DEFAULT 0;
