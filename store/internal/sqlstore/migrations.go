package sqlstore

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
)

// Migrations returns the scripts of a schema in their order. They are files such as
// migration/0001_name.sql; the n-th leads to schema version n.
func Migrations(files fs.FS) ([]string, error) {
	names, err := fs.Glob(files, "migration/*.sql")
	if err != nil {
		return nil, err
	}
	out := make([]string, len(names))
	for i, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migration/"), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, agl.Errorf(agl.CodeInternal, "migration %s is not number %d", name, i+1)
		}
		script, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		out[i] = string(script)
	}
	return out, nil
}
