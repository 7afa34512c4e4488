package sqlite

import (
	"context"

	"github.com/agl-go/agl/store/driver"
)

// writeLabels replaces the labels of a rollout by those in its metadata.
func writeLabels(ctx context.Context, c *conn, rollout int64, metadata []byte, first bool) error {
	l := driver.LabelsOf(metadata)
	switch {
	case l.Text != "":
		return c.exec(ctx, "INSERT OR REPLACE INTO labels (rollout, run, step, labels) VALUES (?, ?, ?, ?)", rollout, nullText(l.Run), nullText(l.Step), l.Text)
	case first:
		return nil
	}
	return c.exec(ctx, "DELETE FROM labels WHERE rollout = ?", rollout)
}
