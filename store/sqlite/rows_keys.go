package sqlite

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// readKey reads an idempotency record, expired or not; nil if it does not exist.
func readKey(ctx context.Context, c *conn, scope string) (*driver.IdempotencyRecord, error) {
	return one(ctx, c, "SELECT "+keyColumns+" FROM keys WHERE scope = ?", []any{scope}, scanKey)
}

const keyColumns = "scope, fingerprint, create_time, made, resources_id"

func scanKey(r row) (*driver.IdempotencyRecord, error) {
	record := &driver.IdempotencyRecord{Scope: r.text(0), Fingerprint: r.text(1), CreateTime: r.time(2), ResourcesID: r.text(4)}
	var made [][2]string
	if err := rawjson.Unmarshal(r.bytes(3), &made); err != nil {
		return nil, agl.Errorf(agl.CodeInternal, "sqlite: the idempotency record %q is damaged; see `agl db check`: %w", record.Scope, err)
	}
	for _, m := range made {
		record.Made = append(record.Made, driver.AttemptKey{RolloutID: m[0], AttemptID: m[1]})
	}
	return record, nil
}

// appendMade encodes the attempts that a keyed write has created as a JSON array of pairs.
func appendMade(dst []byte, made []driver.AttemptKey) []byte {
	return rawjson.AppendArray(dst, made, func(dst []byte, key driver.AttemptKey) []byte {
		return rawjson.AppendArray(dst, []string{key.RolloutID, key.AttemptID}, rawjson.AppendString)
	})
}
